//! The reports of an embedded collector are in the trace unchanged.

use std::time::Duration;

use rtprof::trace;
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::recording::{Kept, check_stack, record, until, valid};
use test_support::trace_script::{self, SWEPT};

use super::skew;

#[test]
fn collections() {
    child::isolated("collections", || {
        let trace = record(trace_script::collector);
        trace.assert_whole();
        let collector = trace.goroutine("collector");
        let of = |event_type| trace.by("collector", event_type);
        for (start, end, function, count) in [
            (EventType::GcStart, EventType::GcDone, "collects", 2),
            (EventType::StwStart, EventType::StwDone, "", 2),
            (EventType::GcSweepStart, EventType::GcSweepDone, "sweeps", 1),
            (EventType::GcMarkAssistStart, EventType::GcMarkAssistDone, "assists", 1),
        ] {
            let (starts, ends) = (of(start), of(end));
            assert_eq!((starts.len(), ends.len()), (count, count), "{}", start.name());
            for (start, end) in starts.iter().zip(ends) {
                assert!(start.g() == collector && end.g() == collector && start.p() == end.p());
                // Only the script's own pauses take time.
                let least = if function == "sweeps" { Duration::ZERO } else { Duration::from_micros(1900) };
                assert!(until(*start, end) >= least, "{start:?} {end:?}");
                if !function.is_empty() {
                    check_stack(*start, function, "collector");
                }
            }
        }
        let numbers: Vec<_> = of(EventType::GcStart).iter().map(|event| event.argument("seq")).collect();
        assert_eq!(numbers, [Some(0), Some(1)]);
        let kinds: Vec<_> = of(EventType::StwStart).iter().map(|event| event.argument("kindid")).collect();
        assert_eq!(kinds, [Some(1), Some(0)], "sweep termination, mark termination");
        let swept = of(EventType::GcSweepDone)[0];
        let swept = [swept.argument("swept"), swept.argument("reclaimed")];
        assert_eq!(swept, [Some(SWEPT as u64); 2], "of both, nested as they were");
    });
}

/// The first event of a trace comes from a goroutine that existed before.
#[test]
fn a_collection_at_once() {
    child::isolated("a_collection_at_once", || {
        let trace = record(rtprof::collector::cycle);
        trace.assert_whole();
        let starts: Vec<_> = trace.parsed.events_of(EventType::GcStart).collect();
        let goroutine = trace.parsed.goroutine_name(starts[0].g());
        assert_eq!((starts.len(), goroutine.is_some()), (1, true), "{starts:?} of {goroutine:?}");
    });
}

/// A collection that begins in one trace and ends in the next: it does not appear in the second, and does not end the
/// collections of the second.
#[test]
fn a_collection_from_before() {
    child::isolated("a_collection_from_before", || {
        let kept = Kept::default();
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let (length, mut stats) = (Duration::from_millis(20), None);
        std::thread::scope(|scope| {
            let (done, ended) = std::sync::mpsc::channel();
            scope.spawn(move || {
                rx.recv().expect("it is rx");
                rtprof::collector::collect(|| std::thread::sleep(length));
                done.send(()).expect("the other listens");
            });
            let written = kept.clone();
            // The closure owns `tx`, so that the other thread does not wait for ever if this one fails.
            let other = scope.spawn(move || {
                trace::start(std::io::sink()).expect("no other trace goes on");
                rtprof::collector::collect(|| {
                    trace::stop().expect("a sink takes everything");
                    trace::start(written).expect("the one before is over");
                });
                tx.send(()).expect("the other listens");
                ended.recv().expect("its collection ends well");
                trace::log("it", "goes on");
            });
            other.join().expect("it ends well");
            stats = Some(trace::stop().expect("a vector takes everything"));
        });
        let trace = valid(kept.bytes(), stats.expect("it was stopped"));
        let of = |event_type| trace.parsed.events_of(event_type).collect::<Vec<_>>();
        let (starts, ends) = (of(EventType::GcStart), of(EventType::GcDone));
        assert_eq!((starts.len(), ends.len()), (1, 1), "{starts:?} {ends:?}");
        let lasted = until(starts[0], ends[0]);
        assert!(lasted >= length - Duration::from_millis(1), "{lasted:?}, {:?}", trace.stats);
        let skew = skew::measured();
        assert!(trace.stats.largest_lift <= skew * 10, "{:?}, a skew of {skew:?}", trace.stats);
    });
}
