//! Misuse of traces: nothing hangs, nothing crashes, errors say what is wrong, and the next trace works.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use rtprof::thread;
use rtprof::trace::{self, Options, Reader, Task, TraceError};
use rtprof_trace_check::{Event, EventType};
use test_support::child;
use test_support::recording::{Kept, Trace, assert_works, record, valid};

#[test]
fn started_twice() {
    child::isolated("started_twice", || {
        let kept = Kept::default();
        trace::start(kept.clone()).expect("no other trace goes on");
        assert!(trace::is_enabled());
        let second = trace::start(io::sink());
        assert!(matches!(second, Err(TraceError::AlreadyStarted)), "{second:?}");
        assert!(matches!(Reader::start(), Err(TraceError::AlreadyStarted)));
        trace::log("still", "recorded");
        let stats = trace::stop().expect("the first one goes on");
        assert!(!trace::is_enabled());
        assert_eq!(valid(kept.bytes(), stats).parsed.count(EventType::UserLog), 1);
        assert_works();
    });
}

#[test]
fn stopped_without_start() {
    child::isolated("stopped_without_start", || {
        assert!(matches!(trace::stop(), Err(TraceError::NotStarted)));
        assert_works();
        assert!(matches!(trace::stop(), Err(TraceError::NotStarted)), "once is enough");
        assert_works();
    });
}

#[test]
fn two_readers() {
    child::isolated("two_readers", || {
        let mut first = Reader::start().expect("no other trace goes on");
        assert!(matches!(Reader::start(), Err(TraceError::AlreadyStarted)));
        trace::log("it", "works");
        first.stop();
        let mut bytes = Vec::new();
        first.read_to_end(&mut bytes).expect("it cannot fail");
        assert_eq!(first.read_chunk(), None, "everything was read");
        let trace = valid(bytes, first.stats());
        assert_eq!(trace.parsed.count(EventType::UserLog), 1);
        drop(first);
        assert_works();
    });
}

/// Chunk by chunk, and byte by byte: the bytes are those of a file.
#[test]
fn read_in_parts() {
    child::isolated("read_in_parts", || {
        let mut reader = Reader::start().expect("no other trace goes on");
        let mut bytes = reader.read_chunk().expect("it begins at once");
        assert!(bytes.starts_with(b"go 1.26 trace\0\0\0"), "{bytes:?}");
        trace::log("it", "works");
        reader.stop_after(Duration::from_millis(30));
        let mut one = [0];
        while bytes.len() < 200 && reader.read(&mut one).expect("it cannot fail") == 1 {
            bytes.push(one[0]);
        }
        while let Some(chunk) = reader.read_chunk() {
            assert!(!chunk.is_empty());
            bytes.extend(chunk);
        }
        assert_eq!(reader.read(&mut one).expect("it cannot fail"), 0);
        let trace = valid(bytes, reader.stats());
        assert_eq!(trace.parsed.count(EventType::UserLog), 1);
        assert!(trace.stats.duration < Duration::from_secs(20), "{:?}", trace.stats);
        drop(reader);
        assert_works();
    });
}

/// A reader that is dropped before everything was read.
#[test]
fn a_reader_dropped_early() {
    child::isolated("a_reader_dropped_early", || {
        drop(Reader::start().expect("no other trace goes on"));
        assert!(!trace::is_enabled(), "it ends the trace");
        let mut reader = Reader::start().expect("the other one is over");
        trace::log("never", "read");
        drop(reader.read_chunk());
        drop(reader);
        assert!(!trace::is_enabled(), "it ends the trace");
        assert!(matches!(trace::stop(), Err(TraceError::NotStarted)));
        assert_works();
    });
}

/// The reader does not read, and another thread stops the trace: it waits for the given `drain_timeout`.
#[test]
fn a_reader_that_never_reads() {
    child::isolated("a_reader_that_never_reads", || {
        let options = Options { drain_timeout: Duration::from_millis(100), ..Options::default() };
        let reader = Reader::start_with(options).expect("no other trace goes on");
        let started = Instant::now();
        let stopped = trace::stop();
        let waited = started.elapsed();
        assert!(matches!(stopped, Err(TraceError::WriterStalled(_))), "{stopped:?}");
        assert!((Duration::from_millis(100)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
        assert!(matches!(Reader::start(), Err(TraceError::WriterBusy)));
        assert!(matches!(trace::start(io::sink()), Err(TraceError::WriterBusy)));
        drop(reader);
        assert_works();
    });
}

fn told(trace: &Trace, event_type: EventType) -> Vec<(u64, &str)> {
    let events = trace.parsed.events_of(event_type);
    events.map(|event| (event.args()[1], event.name())).collect()
}

/// Regions that end on another thread, after the trace, or in the next one end nothing.
#[test]
fn regions_ended_elsewhere() {
    child::isolated("regions_ended_elsewhere", || {
        let early = trace::start_region("before the trace");
        let mut late = None;
        let first = record(|| {
            drop(early);
            let region = trace::start_region("here");
            thread::scope(|scope| drop(scope.spawn(move || drop(region)).join()));
            late = Some(trace::start_region("late"));
        });
        assert_eq!(told(&first, EventType::UserRegion), [(0, "here"), (0, "late")]);
        assert_eq!((first.stats.foreign_region_ends, first.stats.omitted_events), (1, 0));
        let second = record(|| drop(late));
        assert_eq!(told(&second, EventType::UserRegion), []);
        second.assert_whole();
    });
}

/// A recursion that begins a region in each call.
#[test]
fn regions_of_a_deep_recursion() {
    child::isolated("regions_of_a_deep_recursion", || {
        const DEEP: usize = 20_000;
        let trace = record(|| {
            let mut open: Vec<_> = (0..DEEP).map(|_| trace::start_region("call")).collect();
            while let Some(innermost) = open.pop() {
                drop(innermost);
            }
        });
        trace.assert_whole();
        for trace in [&trace, &trace.in_first_format()] {
            let modes = trace.parsed.events_of(EventType::UserRegion).map(|event| event.argument("mode"));
            let ends = modes.filter(|mode| *mode == Some(1)).count();
            assert_eq!((told(trace, EventType::UserRegion).len(), ends), (2 * DEEP, DEEP));
        }
    });
}

#[test]
fn tasks_ended_in_every_way() {
    child::isolated("tasks_ended_in_every_way", || {
        let early = Task::new("before the trace");
        let mut late = None;
        let first = record(|| {
            let part = early.child("of none");
            Task::new("ended").end();
            drop(Task::new("dropped"));
            let elsewhere = Task::new("elsewhere");
            thread::scope(|scope| drop(scope.spawn(move || elsewhere.end()).join()));
            // The parent ends first.
            let outer = Task::new("outer");
            let inner = outer.child("inner");
            drop(outer);
            drop(inner);
            drop(part);
            drop(early);
            std::mem::forget(Task::new("forgotten"));
            late = Some(Task::new("late"));
        });
        first.assert_whole();
        let id = |event: Event<'_>| event.argument("taskid").expect("it has one");
        let created: Vec<_> = first.parsed.events_of(EventType::UserTaskCreate).collect();
        let names: Vec<_> = created.iter().map(Event::name).collect();
        let all = ["of none", "ended", "dropped", "elsewhere", "outer", "inner", "forgotten", "late"];
        assert_eq!(names, all);
        let name = |task: u64| created.iter().find(|event| id(**event) == task).map(|event| event.name());
        let ended = first.parsed.events_of(EventType::UserTaskEnd).map(|event| name(id(event)));
        let ended: Vec<_> = ended.map(|name| name.expect("it was created")).collect();
        assert_eq!(ended, ["ended", "dropped", "elsewhere", "outer", "inner", "of none"]);
        let parents: Vec<_> = created.iter().map(|event| name(event.args()[1]).unwrap_or("")).collect();
        assert_eq!(parents, ["", "", "", "", "", "outer", "", ""]);

        // A task of an earlier trace is no task in a later one.
        let second = record(|| {
            let late = late.expect("it was made");
            let child = late.child("orphan");
            let entered = late.enter();
            trace::log("in", "no task of this trace");
            drop(entered);
            drop(child);
            drop(late);
        });
        second.assert_whole();
        let created: Vec<_> = second.parsed.events_of(EventType::UserTaskCreate).collect();
        assert_eq!(
            created.iter().map(|event| (event.name(), event.args()[1])).collect::<Vec<_>>(),
            [("orphan", 0)]
        );
        assert_eq!(second.parsed.count(EventType::UserTaskEnd), 1);
    });
}

/// Long names are cut to 1,024 bytes, at a character boundary; bytes that have a meaning elsewhere are kept.
#[test]
fn names_of_all_kinds() {
    child::isolated("names_of_all_kinds", || {
        let long = "ä".repeat(5 << 20);
        let odd = "a\0b\n\"<script>\u{2028}%s\u{1F980}";
        let uneven = format!("x{long}");
        let thread_name = "n".repeat(10 << 20);
        let trace = record(|| {
            for name in [&*long, odd, &*uneven, ""] {
                trace::with_region(name, || trace::log(name, name));
                drop(Task::new(name));
            }
            let thread =
                thread::Builder::new().name(thread_name.clone()).spawn(|| trace::log("of", "the thread"));
            thread.expect("any length will do").join().expect("it does nothing");
        });
        trace.assert_whole();
        let expected = [&long[..1024], odd, &uneven[..1023], ""];
        let names =
            |event_type| trace.parsed.events_of(event_type).map(|event| event.name()).collect::<Vec<_>>();
        assert_eq!(names(EventType::UserTaskCreate), expected);
        assert_eq!(names(EventType::UserLog)[..4], expected);
        let twice: Vec<_> = expected.iter().flat_map(|name| [*name, *name]).collect();
        assert_eq!(names(EventType::UserRegion), twice);
        let logs: Vec<_> = trace.parsed.events_of(EventType::UserLog).collect();
        assert_eq!(logs[..4].iter().map(|log| log.message()).collect::<Vec<_>>(), expected);
        let name = trace.parsed.goroutine_name(logs[4].g()).expect("it has one");
        assert!(!name.is_empty() && thread_name.starts_with(name) && name.len() <= 1024, "{}", name.len());
        assert!(trace.bytes.len() < 64 << 10, "{} bytes", trace.bytes.len());
    });
}
