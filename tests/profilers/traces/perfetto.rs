//! A trace in Perfetto's format shows what Go's formats do: the same waits, of the same threads, ended by the same ones.
//!
//! Every trace that the tests record is checked for its form, and its waits are compared with those of Go's format
//! (`test_support::recording`).

use rtprof::sync::{Arc, Mutex};
use rtprof::thread;
use rtprof::trace::{self, FlightRecorder, Format, Options, Task};
use rtprof_trace_check::perfetto::{self, Event, EventKind, Frame, Slice, Trace};
use test_support::contention::{thread_id, wait_until_asleep};
use test_support::recording::{is_named, keep, record, saved};
use test_support::trace_go::readings;
use test_support::trace_script::{self, ALLOCATED, GOAL, WAITS, WAKER};
use test_support::{child, until};

fn has(stack: &[Frame], function: &str) -> bool {
    stack.iter().any(|frame| is_named(&frame.function, function))
}

/// Returns the only track of a thread of this name.
#[track_caller]
fn track_of(trace: &Trace, name: &str) -> u64 {
    let tracks = trace.tracks_named(name);
    let threads: Vec<u64> = tracks.into_iter().filter(|&track| trace.track(track).thread.is_some()).collect();
    assert_eq!(threads.len(), 1, "threads called {name}");
    threads[0]
}

/// Returns the arrow that ends at a slice.
fn cause<'a>(trace: &'a Trace, slice: &Slice) -> Option<&'a Event> {
    let flow = slice.begin.ended_flows.first()?;
    trace.events.iter().find(|event| event.flows.contains(flow))
}

#[test]
fn waits_have_their_reason_their_stack_and_an_arrow() {
    child::isolated("waits_have_their_reason_their_stack_and_an_arrow", || {
        let trace = record(trace_script::waits);
        trace.assert_whole();
        let perfetto = trace.in_perfetto();
        let waker = track_of(&perfetto, WAKER);
        for wait in WAITS {
            let slices: Vec<&Slice> = perfetto.slices_on(track_of(&perfetto, wait.who)).collect();
            let is_it =
                |slice: &&Slice| &*slice.begin.category == "wait" && has(&slice.begin.stack, wait.function);
            let at = slices.iter().position(is_it).unwrap_or_else(|| panic!("{}: {slices:#?}", wait.who));
            let (waited, next) = (slices[at], slices[at + 1]);
            assert_eq!(slices.iter().filter(|slice| is_it(slice)).count(), 1, "{}: {slices:#?}", wait.who);
            let [go, ..] = &trace
                .parsed
                .events_of(wait.event)
                .filter(|block| block.stack().any(|frame| is_named(frame.function, wait.function)))
                .collect::<Vec<_>>()[..]
            else {
                panic!("{}: no {:?}", wait.who, wait.event)
            };
            let frames: Vec<&str> = waited.begin.stack.iter().map(|frame| &*frame.function).collect();
            // Go's format has the goroutine's name in addition.
            assert_eq!(frames, go.functions()[..frames.len()], "{}", wait.who);
            assert_eq!(go.functions().len(), frames.len() + 1, "{}", wait.who);
            assert_eq!(&*next.begin.name, "running", "{}: {slices:#?}", wait.who);
            match (wait.waker, cause(&perfetto, next)) {
                (Some(function), Some(unblock)) => {
                    assert_eq!((&*unblock.name, unblock.track), ("unblock", waker), "{}", wait.who);
                    assert!(has(&unblock.stack, function), "{}: {:?}", wait.who, unblock.stack);
                    assert_eq!(Some(unblock.time), waited.end, "{}", wait.who);
                }
                (None, None) => {}
                (expected, found) => panic!("{}: by {expected:?}, not {found:?}", wait.who),
            }
        }
        agree_with_go(&trace, &perfetto);
    });
}

/// Checks that the sums of the waits that `go tool trace -pprof=sync` counts are the same.
fn agree_with_go(trace: &test_support::recording::Trace, perfetto: &Trace) {
    let is_counted = |name: &str| ["sync", "chan", "select"].iter().any(|word| name.contains(word));
    let waits = perfetto.waits();
    let counted = waits.iter().filter(|(name, _)| is_counted(name)).map(|(_, wait)| wait);
    let (count, nanos) = counted.fold((0, 0), |(count, sum), wait| (count + wait.0, sum + wait.1));
    for reading in readings("perfetto", trace).into_iter().filter(|reading| reading.format == "v2") {
        let samples = reading.go.trace_profile("sync", &reading.path).samples();
        let sum = |at: usize| samples.iter().map(|sample| sample.values[at] as u64).sum::<u64>();
        assert_eq!(sum(0), count, "Go {}: {waits:?}", reading.go.version);
        assert!(sum(1).abs_diff(nanos) <= nanos / 1000, "Go {}: {} and {nanos}", reading.go.version, sum(1));
    }
}

#[test]
fn everything_else() {
    child::isolated("everything_else", || {
        rtprof::set_heap_goal(GOAL / 3);
        let trace = record(|| {
            trace_script::goroutines();
            trace_script::heap();
            trace_script::annotations();
            trace_script::collector();
        });
        let perfetto = trace.in_perfetto();
        let values = |name: &str| -> Vec<i64> {
            let track = perfetto.tracks_named(name)[0];
            let events = perfetto.events.iter().filter(|event| event.track == track);
            events
                .map(|event| match event.kind {
                    EventKind::Counter(value) => value,
                    other => panic!("{other:?} on {name}"),
                })
                .collect()
        };
        assert_eq!(values("heap goal"), [GOAL as i64 / 3, GOAL as i64, 0]);
        let heap = values("live heap");
        let (low, high) = (heap[0], heap.iter().copied().max().expect("there are some"));
        assert!(high - low >= ALLOCATED as i64, "{heap:?}");

        let below = |track: u64, name: &str| perfetto.path(track).contains(&name);
        let slice = |name: &str| {
            let found: Vec<&Slice> =
                perfetto.slices.iter().filter(|slice| &*slice.begin.name == name).collect();
            assert_eq!(found.len(), 1, "slices called {name}");
            found[0]
        };
        let (request, part) = (slice("request"), slice("part"));
        assert!(below(part.begin.track, "request") && below(request.begin.track, "user tasks"));
        assert!(request.begin.time < part.begin.time && part.end < request.end && request.end.is_some());
        assert!(has(&request.begin.stack, "makes_task"), "{:?}", request.begin.stack);
        let (outer, inner) = (slice("outer"), slice("inner"));
        assert_eq!((outer.begin.track, outer.depth, inner.depth), (inner.begin.track, 0, 1));
        assert!(below(outer.begin.track, "annotator") && has(&outer.begin.stack, "begins_outer"));
        let log = perfetto.events.iter().find(|event| &*event.name == "größer").expect("it was logged");
        assert_eq!((&*log.category, perfetto.track(log.track).name.as_str()), ("helping", "helper"));
        assert!(has(&log.stack, "logs"), "{:?}", log.stack);
        assert_eq!(log.annotations.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["task"]);
        let collections =
            perfetto.slices.iter().filter(|slice| below(slice.begin.track, "garbage collections"));
        let stops = perfetto.slices.iter().filter(|slice| below(slice.begin.track, "stops of the world"));
        assert!(collections.count() > 0 && stops.count() > 0);
    });
}

#[test]
fn a_thread_that_waited_before_the_trace_is_a_thread() {
    child::isolated("a_thread_that_waited_before_the_trace_is_a_thread", || {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock();
        let (tx, rx) = std::sync::mpsc::channel();
        let waits = {
            let lock = lock.clone();
            let waits = move || {
                tx.send(thread_id()).expect("it listens");
                drop(lock.lock());
            };
            thread::Builder::new().name("waits".into()).spawn(waits).expect("a thread")
        };
        let id = rx.recv().expect("it has begun");
        wait_until_asleep(id);
        let trace = record(move || {
            drop(held);
            waits.join().expect("it ends well");
        });
        let perfetto = trace.in_perfetto();
        let track = track_of(&perfetto, "waits");
        assert_eq!(perfetto.track(track).thread, Some(i64::from(id)));
        let slices: Vec<&Slice> = perfetto.slices_on(track).collect();
        let first = (&*slices[0].begin.name, &*slices[0].begin.category);
        assert_eq!(first, ("sync: mutex", "wait-before-trace"), "{slices:#?}");
        let tasks = perfetto.tracks_named("async tasks")[0];
        assert!(perfetto.children(tasks).is_empty(), "{:?}", perfetto.children(tasks));
    });
}

/// Returns a window of a flight recorder.
#[track_caller]
fn window(flight: &FlightRecorder) -> Trace {
    let mut bytes = Vec::new();
    flight.write_to(&mut bytes).expect("a vector takes everything");
    keep(&bytes);
    perfetto::check_window(&bytes).unwrap_or_else(|fault| {
        let path = saved(&format!("invalid-window-{}", std::process::id()), &bytes);
        panic!("{fault}\nthe window is in {}", path.display());
    })
}

/// What began before the window, by the names of the slices and their tracks.
const OLD: [(&str, &str); 4] =
    [("sync: mutex", "waits"), ("look up", "regions"), ("in the cache", "regions"), ("checkout", "checkout")];

/// Returns how many of [`OLD`] are in a window, and how many of them end there.
#[track_caller]
fn old_slices(trace: &Trace) -> (usize, usize) {
    let found = OLD.iter().filter_map(|(name, track)| {
        let tracks = trace.tracks_named(track);
        let is_it = |slice: &&Slice| &*slice.begin.name == *name && tracks.contains(&slice.begin.track);
        let found: Vec<&Slice> = trace.slices.iter().filter(is_it).collect();
        assert!(found.len() < 2, "{found:?}");
        found.first().map(|slice| slice.end)
    });
    found.fold((0, 0), |(count, ended), end| (count + 1, ended + usize::from(end.is_some())))
}

#[test]
fn a_window_shows_what_began_before_it() {
    child::isolated("a_window_shows_what_began_before_it", || {
        let options = Options { format: Format::Perfetto, max_bytes: 0, ..Options::default() };
        let flight = FlightRecorder::new(options);
        flight.start().expect("no other one is enabled");
        assert_eq!(flight.format(), Format::Perfetto);
        // It keeps one generation; the end may be in one that was dropped meanwhile.
        until("the ends are in a window", || {
            let lock = Arc::new(Mutex::new(()));
            let held = lock.lock();
            let waits = {
                let lock = lock.clone();
                let waits = move || {
                    let task = Task::new("checkout");
                    trace::with_region("look up", || {
                        trace::with_region("in the cache", || drop(lock.lock()));
                    });
                    task.end();
                };
                thread::Builder::new().name("waits".into()).spawn(waits).expect("a thread")
            };
            let is_before = |trace: &Trace| {
                let waits = trace.slices.iter().filter(|slice| &*slice.begin.name == "sync: mutex");
                waits.into_iter().any(|slice| &*slice.begin.category == "wait-before-trace")
            };
            let mut before = window(&flight);
            until("the wait is older than the window", || {
                before = window(&flight);
                is_before(&before)
            });
            assert_eq!(old_slices(&before), (OLD.len(), 0));
            let first = before.events.iter().map(|event| event.time).min();
            assert!(
                before.slices.iter().filter(|slice| Some(slice.begin.time) == first).count() >= OLD.len()
            );
            drop(held);
            waits.join().expect("it ends well");
            old_slices(&window(&flight)) == (OLD.len(), OLD.len())
        });
        let logged = |trace: &Trace| trace.events.iter().filter(|event| &*event.category == "test").count();
        trace::log("test", "first");
        assert!(logged(&window(&flight)) <= 1);
        flight.stop();
    });
}
