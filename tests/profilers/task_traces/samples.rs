//! CPU samples in a trace: they belong to the task that computes.

use std::cell::Cell;
use std::future::poll_fn;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use rtprof::task::Instrument;
use rtprof::trace::{self, Options};
use rtprof_trace_check::{Event, EventType};
use test_support::child;
use test_support::processor::burn;
use test_support::recording::{Trace, has, record_with, start, valid};
use test_support::trace_go;

use crate::tasks::by_hand::{Leaf, Woken, poll};

const TIME: Duration = Duration::from_millis(100);

fn sampled() -> Options {
    Options { cpu_hz: 1000, ..Options::default() }
}

// The bodies of these three differ, because the compiler merges functions with equal bodies.
#[inline(never)]
fn in_a_poll() {
    black_box("in a poll");
    burn(TIME);
}

#[inline(never)]
fn between_polls() {
    black_box("between polls");
    burn(TIME);
}

#[inline(never)]
fn in_an_inner_poll() {
    black_box("in an inner poll");
    burn(TIME);
}

/// Returns the goroutines and lanes of the samples in `function`. There must be samples.
#[track_caller]
fn places(trace: &Trace, function: &str) -> Vec<(u64, u64)> {
    let samples = trace.parsed.events_of(EventType::CpuSample).filter(|sample| has(*sample, function));
    let place = |sample: Event<'_>| {
        (sample.argument("g").expect("it has one"), sample.argument("p").expect("a lane"))
    };
    let mut places: Vec<_> = samples.map(place).collect();
    assert!(!places.is_empty(), "no sample of 100 ms in {function}");
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn samples_belong_to_the_task_that_is_polled() {
    child::isolated("samples_belong_to_the_task_that_is_polled", || {
        let executor = Arc::new(Woken::default());
        let trace = record_with(sampled(), || {
            let inner = async { in_an_inner_poll() }.instrument_named("inner");
            let outer = async {
                in_a_poll();
                inner.await;
            };
            assert!(poll(pin!(outer.instrument_named("outer")), &executor).is_ready());
            between_polls();
        });
        trace.assert_whole();
        trace.assert_in_order();
        let [outer, inner] = ["outer", "inner"].map(|name| trace.goroutine(name));
        let places =
            ["in_a_poll", "in_an_inner_poll", "between_polls"].map(|function| places(&trace, function));
        // All samples are on the lane of the polling thread, and those outside of polls belong to that thread's
        // goroutine.
        let lane = places[0][0].1;
        assert_eq!(places[..2], [[(outer, lane)], [(inner, lane)]]);
        let [(thread, its_lane)] = places[2][..] else { panic!("{places:?}") };
        assert!(its_lane == lane && ![outer, inner].contains(&thread), "{places:?}");
        trace_go::check("task-samples", &trace, &[]);
    });
}

/// Records a trace that begins in a poll, in which the task is then woken from another thread and computes. The task is
/// polled twice more.
fn started_in_a_poll(options: Options) -> Trace {
    let (executor, leaf, kept) = (Arc::new(Woken::default()), Leaf::default(), Cell::new(None));
    let (mut polls, mut options) = (0, Some(options));
    let task = poll_fn(|context| {
        polls += 1;
        match polls {
            1 => {
                let options = options.take().expect("this is the first poll");
                kept.set(Some(start(options)));
                let waker = context.waker();
                thread::scope(|scope| _ = scope.spawn(|| waker.wake_by_ref()));
                in_a_poll();
                Poll::Pending
            }
            2 => pin!(leaf.clone()).poll(context),
            _ => Poll::Ready(()),
        }
    });
    let mut task = Box::pin(task.instrument_named("polled"));
    assert!(poll(task.as_mut(), &executor).is_pending() && executor.count() == 1);
    assert!(poll(task.as_mut(), &executor).is_pending());
    leaf.take().into_iter().for_each(Waker::wake);
    assert!(poll(task.as_mut(), &executor).is_ready());
    let stats = trace::stop().expect("a vector takes everything");
    let trace = valid(kept.take().expect("it was started").bytes(), stats);
    trace.assert_whole();
    trace.assert_in_order();
    trace
}

/// A task whose poll is under way when the trace begins is in it from its first event or sample, and continues like any
/// other.
#[test]
fn a_poll_that_began_before_the_trace() {
    child::isolated("a_poll_that_began_before_the_trace", || {
        use EventType::{
            CpuSample, GoBlockSync, GoCreate, GoEnd, GoSched, GoStart, GoStartLocal, GoUnblock,
            GoUnblockLocal, HeapAlloc,
        };
        for (options, has_samples) in [(Options::default(), false), (sampled(), true)] {
            let trace = started_in_a_poll(options);
            let task = trace.goroutine("polled");
            if has_samples {
                let places = places(&trace, "in_a_poll");
                assert!(matches!(places[..], [(goroutine, _)] if goroutine == task), "{task}: {places:?}");
            }
            let story = trace.story(task).into_iter().map(|event| event.event_type());
            let story: Vec<_> = story.filter(|kind| ![CpuSample, HeapAlloc].contains(kind)).collect();
            let is_start = |kind: &EventType| [GoStart, GoStartLocal].contains(kind);
            // The task was woken inside of the first poll, so that poll ends as one that can continue.
            let [GoCreate, first, GoSched, second, GoBlockSync, wake, third, GoEnd] = &story[..] else {
                panic!("{story:?}")
            };
            assert!([first, second, third].into_iter().all(is_start), "{story:?}");
            assert!([GoUnblock, GoUnblockLocal].contains(wake), "{story:?}");
            trace_go::check("task-samples-before", &trace, &[]);
        }
    });
}
