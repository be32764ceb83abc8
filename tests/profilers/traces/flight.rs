//! The flight recorder: its windows, beside traces, under load.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rtprof::sync::{Arc, Mutex};
use rtprof::trace::{self, FlightRecorder, Format, Options, Reader, Stats, TraceError};
use rtprof::{GoroutineState, collector, thread};
use rtprof_trace_check::{EventType, Parsed};
use test_support::recording::{self, assert_works, is_named, saved};
use test_support::{Background, PATIENCE, child, fork, go, rounds, until};

/// Returns a window, which must be valid.
#[track_caller]
fn window(flight: &FlightRecorder) -> Parsed {
    let mut bytes = Vec::new();
    let len = flight.write_to(&mut bytes).expect("a vector takes everything");
    assert_eq!(len, bytes.len() as u64);
    recording::parse(&bytes, "window")
}

/// Returns options whose windows reach back to the start.
fn lasting() -> Options {
    Options { min_age: PATIENCE, ..Options::default() }
}

fn started(options: Options) -> FlightRecorder {
    let flight = FlightRecorder::new(options);
    flight.start().expect("no other one is enabled");
    flight
}

fn logs(parsed: &Parsed) -> Vec<String> {
    let of = |event: rtprof_trace_check::Event<'_>| event.message().to_owned();
    parsed.events_of(EventType::UserLog).map(of).collect()
}

fn names(parsed: &Parsed) -> Vec<String> {
    parsed.strings().map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn a_window_shows_what_happened_up_to_now() {
    child::isolated("a_window_shows_what_happened_up_to_now", || {
        let flight = started(lasting());
        assert!(flight.enabled() && FlightRecorder::current().is_some() && trace::is_enabled());
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock();
        let waits = {
            let lock = lock.clone();
            thread::Builder::new().name("waits".into()).spawn(move || wait_for(&lock)).unwrap()
        };
        trace::log("test", "first");
        // Its wait is in the window as soon as it has begun.
        let mut first = window(&flight);
        until("the thread waits", || {
            first = window(&flight);
            first.goroutines_named("waits").next().is_some_and(|waiter| {
                first.events_of(EventType::GoBlockSync).any(|event| event.g() == waiter)
            })
        });
        assert_eq!(logs(&first), ["first"]);
        drop(held);
        waits.join().expect("it ends well");
        trace::log("test", "second");
        let second = window(&flight);
        assert_eq!(logs(&second), ["first", "second"]);
        let waiter = second.goroutines_named("waits").next().expect("it was traced");
        let wait = second.events_of(EventType::GoBlockSync).find(|event| event.g() == waiter).unwrap();
        assert_eq!(wait.reason(), "sync: mutex");
        assert!(wait.functions().iter().any(|function| is_named(function, "wait_for")), "{wait:?}");
        let woken = second.events().any(|event| {
            event.event_type() == EventType::GoUnblock && event.target() == Some(waiter) && event.g() != 0
        });
        assert!(woken, "the window shows who held the lock");
        let stats = flight.stats();
        assert!(stats.events > 0 && stats.generations > 1 && stats.bytes > 0, "{stats:?}");
        assert_eq!((stats.dropped_events, stats.dropped_stacks, stats.omitted_events), (0, 0, 0));
        flight.stop();
        assert!(!flight.enabled() && FlightRecorder::current().is_none() && !trace::is_enabled());
        assert_eq!(flight.stats(), Stats::default());
        assert_works();
    });
}

fn wait_for(lock: &Mutex<()>) {
    drop(lock.lock());
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    child::isolated("misuse_is_an_error_and_changes_nothing", || {
        let flight = FlightRecorder::new(Options::default());
        assert!(!flight.enabled() && FlightRecorder::current().is_none());
        flight.stop();
        let disabled = flight.write_to(Vec::new());
        assert!(matches!(disabled, Err(TraceError::FlightDisabled)), "{disabled:?}");
        let first_format = FlightRecorder::new(Options { format: Format::V1, ..Options::default() });
        let refused = first_format.start().unwrap_err();
        assert!(matches!(refused, TraceError::FlightFormat(Format::V1)), "{refused:?}");
        assert!(refused.to_string().ends_with("choose v2"), "{refused}");
        flight.start().expect("no other one is enabled");
        let other = FlightRecorder::new(Options::default());
        for again in [flight.start(), flight.clone().start(), other.start()] {
            assert!(matches!(again, Err(TraceError::FlightEnabled)), "{again:?}");
        }
        other.stop();
        assert!(flight.enabled() && !other.enabled());

        struct Full(usize);
        impl std::io::Write for Full {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let len = bytes.len().min(self.0);
                self.0 -= len;
                Ok(len)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let failed = flight.write_to(Full(20));
        assert!(matches!(&failed, Err(TraceError::Write(_, stats)) if stats.bytes == 16), "{failed:?}");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            struct Panics;
            impl std::io::Write for Panics {
                fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                    panic!("as wanted")
                }
                fn flush(&mut self) -> std::io::Result<()> {
                    Ok(())
                }
            }
            flight.write_to(Panics)
        }));
        assert!(panicked.is_err());
        window(&flight);
        flight.stop();
        flight.start().expect("it was stopped");
        window(&flight);
        drop(flight);
        FlightRecorder::current().expect("nobody has stopped it").stop();
    });
}

#[test]
fn a_trace_goes_on_beside_it() {
    child::isolated("a_trace_goes_on_beside_it", || {
        let flight = started(lasting());
        trace::log("test", "before");
        let in_it = trace::start_region("region from before");
        let trace = recording::record(|| {
            trace::log("test", "within");
            drop(in_it);
            // Windows do not disturb it.
            assert_eq!(logs(&window(&flight)), ["before", "within"]);
            let mut waits = Vec::new();
            for _ in 0..3 {
                let thread = thread::spawn(|| trace::log("test", "a thread"));
                waits.push(thread);
                window(&flight);
            }
            waits.into_iter().for_each(|thread| thread.join().expect("it ends well"));
        });
        trace.assert_whole_but_for_what_began_before();
        assert_eq!(logs(&trace.parsed), ["within", "a thread", "a thread", "a thread"]);
        assert!(trace.parsed.events_of(EventType::HeapAlloc).next().is_some());
        trace::log("test", "after");
        let all = ["before", "within", "a thread", "a thread", "a thread", "after"];
        assert_eq!(logs(&window(&flight)), all);

        // A trace goes on when the flight recorder stops, and another begins beside it.
        let trace = recording::record(|| {
            trace::log("test", "both");
            flight.stop();
            assert!(trace::is_enabled());
            trace::log("test", "alone");
            flight.start().expect("it was stopped");
            trace::log("test", "both again");
        });
        assert_eq!(logs(&trace.parsed), ["both", "alone", "both again"]);
        assert_eq!(logs(&window(&flight)), ["both again"]);
        flight.stop();
        assert_works();
    });
}

/// The reader of a trace that does not read loses events, and the flight recorder does not.
#[test]
fn a_slow_reader_of_a_trace_costs_the_window_nothing() {
    child::isolated("a_slow_reader_of_a_trace_costs_the_window_nothing", || {
        let flight = started(Options { max_bytes: 1 << 20, min_age: PATIENCE, ..Options::default() });
        let options = Options { buffer_memory: 1 << 20, ..Options::default() };
        let mut reader = Reader::start_with(options).expect("no other trace goes on");
        let enough = rounds(4, 8) << 20;
        until("much was recorded", || {
            for _ in 0..1000 {
                trace::with_region("region", || ());
            }
            let stats = flight.stats();
            stats.recorded_bytes > enough && stats.generations > 3
        });
        trace::log("test", "at the end");
        reader.stop();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("memory takes everything");
        let stats = trace::stop().expect("everything was read");
        assert!(stats.dropped_events > 0 && stats.dropped_buffers > 0, "{stats:?}");
        assert!(stats.events > 0, "{stats:?}");
        let parsed = recording::parse(&bytes, "slow-reader");
        assert!(parsed.events_of(EventType::UserRegion).next().is_some());
        assert_eq!(flight.stats().dropped_events, 0, "{:?}", flight.stats());
        assert_eq!(logs(&window(&flight)), ["at the end"]);
        flight.stop();
        assert_works();
    });
}

#[test]
fn old_generations_are_dropped() {
    child::isolated("old_generations_are_dropped", || {
        // Everything is too old but the newest generation.
        let flight = started(Options { min_age: Duration::ZERO, ..Options::default() });
        trace::log("test", "old");
        assert_eq!(logs(&window(&flight)), ["old"]);
        until("the second generation is over", || {
            trace::log("test", "new");
            let logs = logs(&window(&flight));
            !logs.is_empty() && logs.iter().all(|message| message == "new")
        });
        flight.stop();

        // The records of a generation are within this, however late it is cut.
        let (max_bytes, buffer_memory) = (1 << 20, 1 << 20);
        let flight = started(Options { max_bytes, buffer_memory, min_age: PATIENCE, ..Options::default() });
        let mut largest = 0;
        let enough = rounds(8, 20) * max_bytes as u64;
        until("many times the window was recorded", || {
            for _ in 0..10_000 {
                trace::with_region("region", || ());
            }
            largest = largest.max(flight.stats().bytes);
            flight.stats().recorded_bytes > enough
        });
        // At most one generation more, which is hardly larger in the file than its records.
        let range = max_bytes * 3 / 4..max_bytes + 2 * buffer_memory;
        assert!(range.contains(&(largest as usize)), "{largest} bytes at most");
        let stats = flight.stats();
        let parsed = window(&flight);
        assert!(parsed.generations().len() > 1, "{stats:?}");
        flight.stop();
    });
}

#[test]
fn a_call_in_progress_is_shown_in_each_window() {
    child::isolated("a_call_in_progress_is_shown_in_each_window", || {
        let flight = started(lasting());
        let (end, ends) = std::sync::mpsc::channel();
        let calls = move || {
            trace::syscall(|| ends.recv()).expect("it is told to end");
            trace::log("test", "back");
        };
        let thread = thread::Builder::new().name("calls".into()).spawn(calls).expect("there are threads");
        let is_in_call = || {
            let window = window(&flight);
            let caller = window.goroutines_named("calls").next();
            caller
                .is_some_and(|caller| window.events_of(EventType::GoSysBlock).any(|call| call.g() == caller))
        };
        until("the call has begun", || {
            let profile = rtprof::goroutine_profile();
            profile.iter().any(|record| record.name == "calls" && record.state == GoroutineState::Syscall)
        });
        // Also in the first window, whose last generation is the one in which the call began.
        for _ in 0..3 {
            assert!(is_in_call());
        }
        end.send(()).expect("it waits");
        thread.join().expect("it ends well");
        assert_eq!(logs(&window(&flight)), ["back"]);
        flight.stop();
    });
}

/// A window has an end even if the program records faster than it is encoded.
#[test]
fn a_program_that_records_too_fast() {
    child::isolated("a_program_that_records_too_fast", || {
        let options = Options { max_bytes: 1 << 20, buffer_memory: 512 << 10, ..Options::default() };
        let flight = started(options);
        let background = Background::default();
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            for _ in 0..3 {
                s.spawn(|| background.repeat(|| trace::with_region("region", || ())));
            }
            until("it was too fast", || flight.stats().dropped_events > 0);
            for _ in 0..3 {
                let mut bytes = Vec::new();
                flight.write_to(&mut bytes).expect("a vector takes everything");
                assert!(bytes.len() > 1000);
            }
            flight.stop();
        });
        assert_works();
    });
}

/// Windows are written from several threads while threads are born and die, and collections and regions go on.
#[test]
fn a_storm_of_windows() {
    child::isolated("a_storm_of_windows", || {
        let wanted =
            std::env::var("RTPROF_WINDOWS").map_or(rounds(40, 100), |n| n.parse().expect("a number"));
        let options =
            Options { max_bytes: 256 << 10, min_age: Duration::from_millis(500), ..Options::default() };
        let flight = started(options);
        let (background, written) = (Background::default(), AtomicUsize::new(0));
        let lock = Mutex::new(0u64);
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            for _ in 0..3 {
                s.spawn(|| {
                    background.repeat(|| {
                        let thread = thread::spawn(|| trace::with_region("short", thread::yield_now));
                        *lock.lock() += 1;
                        thread.join().expect("it ends well");
                    });
                });
            }
            s.spawn(|| {
                background.repeat(|| {
                    let _task = trace::Task::new("task");
                    collector::collect(|| trace::syscall(|| thread::sleep(Duration::from_micros(200))));
                });
            });
            s.spawn(|| {
                background.repeat(|| {
                    trace::start(std::io::sink()).expect("no other trace goes on");
                    thread::sleep(Duration::from_millis(3));
                    trace::stop().expect("a sink takes everything");
                });
            });
            std::thread::scope(|s| {
                for writer in 0..2 {
                    let (flight, written) = (&flight, &written);
                    s.spawn(move || {
                        while written.fetch_add(1, Ordering::Relaxed) < wanted {
                            let parsed = window(flight);
                            assert!(parsed.events().count() > 0, "of writer {writer}");
                        }
                    });
                }
            });
        });
        let mut bytes = Vec::new();
        flight.write_to(&mut bytes).expect("a vector takes everything");
        let path = saved("storm-of-windows", &bytes);
        for (go, _) in go::trace_toolchains("a_storm_of_windows") {
            if go.version.starts_with("1.27") {
                go.trace_events(&path);
            }
        }
        flight.stop();
        assert_works();
    });
}

/// A writer that waits, at its first write, until it is told to go on.
struct Waits {
    bytes: Vec<u8>,
    has_begun: Sender<()>,
    goes_on: Receiver<()>,
}

impl Write for Waits {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() {
            self.has_begun.send(()).expect("the test waits for it");
            self.goes_on.recv().expect("the test tells it");
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Its stacks and names stay although its recorder is stopped, and other recordings begin and end meanwhile.
#[test]
fn a_window_is_written_until_after_its_recorder() {
    child::isolated("a_window_is_written_until_after_its_recorder", || {
        for format in [Format::V2, Format::V2Go122] {
            let flight = started(Options { format, ..lasting() });
            let texts: Vec<_> = (0..100).map(|n| format!("text {n} of the first recorder")).collect();
            texts.iter().for_each(|text| trace::log("kept", text));
            texts.iter().for_each(|name| trace::with_region(name, || ()));
            let (has_begun, begun) = channel();
            let (go_on, goes_on) = channel();
            let writing = std::thread::spawn({
                let (flight, mut to) = (flight.clone(), Waits { bytes: Vec::new(), has_begun, goes_on });
                move || {
                    flight.write_to(&mut to).expect("the writer takes everything");
                    to.bytes
                }
            });
            begun.recv().expect("it writes");
            flight.stop();
            for round in 0..4 {
                trace::start(std::io::sink()).expect("nothing is recorded");
                trace::log("later", &format!("text of round {round}"));
                trace::stop().expect("a sink takes everything");
            }
            let next = started(lasting());
            trace::log("later", "text of the next recorder");
            next.stop();
            go_on.send(()).expect("it waits");
            let bytes = writing.join().expect("it ends well");
            let parsed = recording::parse(&bytes, "written-late");
            assert_eq!(logs(&parsed), texts);
            let names = names(&parsed);
            assert!(texts.iter().all(|text| names.contains(text)), "{names:?}");
            let function = "a_window_is_written_until_after_its_recorder";
            assert!(parsed.events_of(EventType::UserLog).all(|event| recording::has(event, function)));
        }
        assert_works();
    });
}

/// There is room for 65,536 names, so the window begins anew before they are used up.
#[test]
fn new_names_are_never_used_up() {
    child::isolated("new_names_are_never_used_up", || {
        let flight = started(Options { min_age: PATIENCE, ..Options::default() });
        let mut number = 0;
        for round in 0..4 {
            // A few more than three quarters of the room, which begins anew; the rest of it is for a slow machine.
            for _ in 0..50_000 {
                trace::with_region(&format!("region {number}"), || ());
                number += 1;
            }
            let first = format!("region {}", number - 50_000);
            until("the window begins anew", || !names(&window(&flight)).contains(&first));
            let name = format!("after round {round}");
            trace::with_region(&name, || ());
            assert!(names(&window(&flight)).contains(&name), "in round {round}");
        }
        assert_eq!(flight.stats().dropped_names, 0, "{:?}", flight.stats());
        assert!(flight.stats().events >= 2 * number, "{:?}", flight.stats());
        flight.stop();
        assert_works();
    });
}

#[test]
fn a_forked_child_has_none() {
    fork::isolated("a_forked_child_has_none", "fork", || {
        let flight = started(lasting());
        fork::in_a_child("a child of a flight recorder", || {
            assert!(!flight.enabled() && FlightRecorder::current().is_none());
            assert!(matches!(flight.write_to(Vec::new()), Err(TraceError::FlightDisabled)));
            flight.stop();
            let other = FlightRecorder::new(Options::default()).start();
            assert!(matches!(other, Err(TraceError::Forked)), "{other:?}");
        });
        window(&flight);
        flight.stop();
        assert_works();
    });
}
