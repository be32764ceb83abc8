//! Spans and events of the crate tracing, in traces.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Waker};
use std::thread;

use rtprof::task::Instrument;
use rtprof_trace_check::{Event, EventType};
use test_support::child;
use test_support::recording::{Trace, record};
use test_support::trace_go;
use tracing::dispatcher::with_default;
use tracing::span::{Id, Record};
use tracing::{Subscriber, debug_span, info, info_span, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{self, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

fn subscribe() {
    let layer = rtprof::tracing::layer().with_filter(LevelFilter::INFO);
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("it is the only one");
}

fn argument(event: Event<'_>, name: &str) -> u64 {
    event.argument(name).expect("it has one")
}

/// Returns the tasks of a trace: name, number, and the number of the parent.
fn tasks(trace: &Trace) -> Vec<(&str, u64, u64)> {
    let created = trace.parsed.events_of(EventType::UserTaskCreate);
    created.map(|task| (task.name(), argument(task, "taskid"), argument(task, "pid"))).collect()
}

/// Returns the regions of a trace: name, task, and whether it begins.
fn regions(trace: &Trace) -> Vec<(&str, u64, bool)> {
    let regions = trace.parsed.events_of(EventType::UserRegion);
    regions.map(|event| (event.name(), argument(event, "taskid"), argument(event, "mode") == 0)).collect()
}

/// Returns the messages of a trace, with their tasks.
fn logs(trace: &Trace) -> Vec<(String, u64)> {
    let logs = trace.parsed.events_of(EventType::UserLog);
    logs.map(|log| (format!("{}: {}", log.name(), log.message()), argument(log, "id"))).collect()
}

fn ended(trace: &Trace) -> Vec<u64> {
    trace.parsed.events_of(EventType::UserTaskEnd).map(|end| argument(end, "taskid")).collect()
}

#[inline(never)]
fn handle(user: u32) {
    let request = info_span!("request", user, found = tracing::field::Empty);
    request.in_scope(|| {
        info!(rows = 3, "asked");
        debug_span!("too fine").in_scope(|| info_span!("query").in_scope(|| warn!("slow")));
        request.record("found", true);
    });
    info!(parent: &request, "after");
}

#[test]
fn spans_are_tasks_with_regions() {
    child::isolated("spans_are_tasks_with_regions", || {
        subscribe();
        let trace = record(|| handle(7));
        trace.assert_whole();
        let tasks = tasks(&trace);
        let [("request", request, 0), ("query", query, parent)] = tasks[..] else { panic!("{tasks:?}") };
        assert_eq!(parent, request, "the span between them is not in the trace");
        let expected = [
            ("request", request, true),
            ("query", query, true),
            ("query", query, false),
            ("request", request, false),
        ];
        assert_eq!(regions(&trace), expected);
        let expected = [
            ("fields: user=7", request),
            (concat!(module_path!(), ": INFO asked rows=3"), request),
            (concat!(module_path!(), ": WARN slow"), query),
            ("fields: found=true", request),
            (concat!(module_path!(), ": INFO after"), request),
        ];
        assert_eq!(logs(&trace), expected.map(|(text, task)| (text.to_owned(), task)));
        assert_eq!(ended(&trace), [query, request]);
        // The program's function is the leaf of each stack.
        let named = [EventType::UserTaskCreate, EventType::UserRegion, EventType::UserLog];
        for event in named.into_iter().flat_map(|kind| trace.parsed.events_of(kind)) {
            // The end of a region has no stack.
            if event.event_type() == EventType::UserRegion && argument(event, "mode") == 1 {
                continue;
            }
            let stack = event.functions();
            assert!(stack[0].starts_with(concat!(module_path!(), "::handle")), "{stack:#?}");
        }
        trace_go::check("spans", &trace, &[]);
    });
}

/// Guards that are dropped in another order than usual, or on another thread.
#[test]
fn spans_left_in_any_order() {
    child::isolated("spans_left_in_any_order", || {
        subscribe();
        let trace = record(|| {
            let (one, two) = (info_span!("one").entered(), info_span!("two").entered());
            let one = one.exit();
            info!("in two");
            drop(two);
            info!("in none");
            let entered = one.entered();
            thread::scope(|scope| scope.spawn(|| info!("elsewhere")).join().expect("it ends"));
            drop(entered);
        });
        let tasks = tasks(&trace);
        let [("one", _, 0), ("two", two, _)] = tasks[..] else { panic!("{tasks:?}") };
        let expected = [
            (concat!(module_path!(), ": INFO in two"), two),
            (concat!(module_path!(), ": INFO in none"), 0),
            (concat!(module_path!(), ": INFO elsewhere"), 0),
        ];
        assert_eq!(logs(&trace), expected.map(|(text, task)| (text.to_owned(), task)));
        trace_go::check("spans-order", &trace, &[]);
    });
}

/// The parent that the program names for an event counts, also if it is none, or not in the trace.
#[test]
fn events_with_a_parent() {
    child::isolated("events_with_a_parent", || {
        subscribe();
        let trace = record(|| {
            let other = info_span!("other");
            let fine = debug_span!("too fine");
            info_span!("current").in_scope(|| {
                info!("here");
                info!(parent: &other, "there");
                info!(parent: None, "nowhere");
                info!(parent: &fine, "hidden");
            });
        });
        let tasks = tasks(&trace);
        let [("other", other, 0), ("current", current, 0)] = tasks[..] else { panic!("{tasks:?}") };
        let expected = [("here", current), ("there", other), ("nowhere", 0), ("hidden", 0)];
        let expected =
            expected.map(|(text, task)| (format!(concat!(module_path!(), ": INFO {}"), text), task));
        assert_eq!(logs(&trace), expected);
    });
}

/// Each of many spans inside each other has its region, and each event its span.
#[test]
fn spans_of_a_deep_recursion() {
    const DEPTH: usize = 500;
    fn descend(depth: usize) {
        info_span!("level").in_scope(|| {
            if depth > 1 {
                descend(depth - 1);
            }
            info!("back");
        });
    }
    child::isolated("spans_of_a_deep_recursion", || {
        subscribe();
        let trace = record(|| descend(DEPTH));
        trace.assert_whole();
        let tasks: Vec<u64> = tasks(&trace).into_iter().map(|(_, task, _)| task).collect();
        let inner_first: Vec<u64> = tasks.iter().rev().copied().collect();
        let begins = tasks.iter().map(|&task| ("level", task, true));
        let ends = inner_first.iter().map(|&task| ("level", task, false));
        assert_eq!(tasks.len(), DEPTH);
        assert_eq!(regions(&trace), begins.chain(ends).collect::<Vec<_>>());
        assert_eq!(logs(&trace).into_iter().map(|(_, task)| task).collect::<Vec<_>>(), inner_first);
        assert_eq!(ended(&trace), inner_first);
    });
}

/// Two subscribers of one thread number their spans alike.
#[test]
fn spans_of_two_subscribers() {
    child::isolated("spans_of_two_subscribers", || {
        let new = || tracing::Dispatch::new(tracing_subscriber::registry().with(rtprof::tracing::layer()));
        let (one, two) = (new(), new());
        let trace = record(|| {
            let (outer, inner) =
                (with_default(&one, || info_span!("outer")), with_default(&two, || info_span!("inner")));
            assert_eq!(outer.id(), inner.id(), "this test is about equal numbers");
            let (outer, inner) = (outer.entered(), inner.entered());
            drop(outer);
            with_default(&two, || info!("in inner"));
            drop(inner);
        });
        let tasks = tasks(&trace);
        let [("outer", ..), ("inner", inner, _)] = tasks[..] else { panic!("{tasks:?}") };
        assert_eq!(logs(&trace), [(concat!(module_path!(), ": INFO in inner").to_owned(), inner)]);
    });
}

/// Another layer that panics while it has a span's data, as one that formats a value whose `Debug` panics: a program that
/// survives this without a trace survives it with one.
#[test]
fn a_panic_in_another_layer() {
    struct Panics;

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panics {
        fn on_record(&self, span: &Id, _: &Record<'_>, context: layer::Context<'_, S>) {
            let span = context.span(span).expect("it is open");
            let _data = span.extensions_mut();
            panic!("another layer has a defect");
        }
    }

    child::isolated("a_panic_in_another_layer", || {
        let subscriber = tracing_subscriber::registry().with(Panics).with(rtprof::tracing::layer());
        tracing::subscriber::set_global_default(subscriber).expect("it is the only one");
        let trace = record(|| {
            let broken = info_span!("broken", value = tracing::field::Empty);
            let kept = broken.clone();
            let thread = thread::spawn(move || {
                let _entered = broken.enter();
                broken.record("value", 1);
            });
            thread.join().expect_err("the other layer panics");
            kept.in_scope(|| info_span!("inner").in_scope(|| info!("goes on")));
            info!(parent: &kept, "after");
        });
        let texts: Vec<String> = logs(&trace).into_iter().map(|(text, _)| text).collect();
        assert_eq!(
            texts,
            ["goes on", "after"].map(|text| format!(concat!(module_path!(), ": INFO {}"), text))
        );
        let broken = tasks(&trace)[0].1;
        assert!(ended(&trace).contains(&broken), "the registry drops the task when the span is closed");
    });
}

/// A future's span is entered at each poll, on whichever thread, and belongs to the async task.
#[test]
fn spans_of_futures() {
    child::isolated("spans_of_futures", || {
        subscribe();
        let trace = record(|| {
            let mut polls = 0;
            let future = std::future::poll_fn(move |_| {
                polls += 1;
                info!(polls, "polled");
                if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            let future = tracing::Instrument::instrument(future, info_span!("lookup"));
            let mut task = Box::pin(future.instrument_named("worker"));
            let mut poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            assert!(!poll());
            info!("between");
            assert!(thread::scope(|scope| scope.spawn(poll).join().expect("it polls")));
        });
        trace.assert_whole();
        let tasks = tasks(&trace);
        let [("lookup", lookup, 0)] = tasks[..] else { panic!("{tasks:?}") };
        let expected = [true, false, true, false].map(|begins| ("lookup", lookup, begins));
        // Dropping the future enters the span once more.
        assert_eq!(regions(&trace)[..4], expected);
        let worker = trace.goroutine("worker");
        let mut polls = trace.parsed.events_of(EventType::UserRegion).take(4);
        assert!(polls.all(|region| region.g() == worker), "{worker}");
        let expected = [
            (concat!(module_path!(), ": INFO polled polls=1"), lookup),
            (concat!(module_path!(), ": INFO between"), 0),
            (concat!(module_path!(), ": INFO polled polls=2"), lookup),
        ];
        assert_eq!(logs(&trace), expected.map(|(text, task)| (text.to_owned(), task)));
        assert_eq!(ended(&trace), [lookup]);
    });
}

/// A span that exists when a trace begins is in it from its next entry, in each trace with a number of its own.
#[test]
fn spans_that_are_older_than_the_trace() {
    child::isolated("spans_that_are_older_than_the_trace", || {
        subscribe();
        let connection = info_span!("connection");
        let request = info_span!(parent: &connection, "request");
        let entered = connection.enter();
        for _ in 0..2 {
            let trace = record(|| {
                info!("in no span of the trace");
                request.in_scope(|| info!("asked"));
            });
            let tasks = tasks(&trace);
            let [("connection", connection, 0), ("request", request, parent)] = tasks[..] else {
                panic!("{tasks:?}")
            };
            assert_eq!(parent, connection);
            let expected = [
                (concat!(module_path!(), ": INFO in no span of the trace"), 0),
                (concat!(module_path!(), ": INFO asked"), request),
            ];
            assert_eq!(logs(&trace), expected.map(|(text, task)| (text.to_owned(), task)));
        }
        drop(entered);
        let trace = record(|| info!("outside"));
        assert_eq!(logs(&trace), [(concat!(module_path!(), ": INFO outside").to_owned(), 0)]);
    });
}

/// Many threads enter one span, while traces begin and end.
#[test]
fn one_span_in_many_threads() {
    child::isolated("one_span_in_many_threads", || {
        subscribe();
        let shared = info_span!("shared");
        static STOP: AtomicBool = AtomicBool::new(false);
        /// How often each of the other threads has left the span.
        static LEFT: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
        let others = LEFT.each_ref().map(|left| {
            let shared = shared.clone();
            thread::spawn(move || {
                while !STOP.load(Relaxed) {
                    shared.in_scope(|| info_span!("inner").in_scope(|| info!("here")));
                    left.fetch_add(1, Relaxed);
                }
            })
        });
        for _ in 0..3 {
            let trace = record(|| {
                (0..100).for_each(|_| shared.in_scope(|| info!("here")));
                // A thread that has begun the task as well ends what it began before it leaves the span.
                let before = LEFT.each_ref().map(|left| left.load(Relaxed));
                test_support::until("each thread has left the span", || {
                    before.iter().zip(&LEFT).all(|(before, left)| left.load(Relaxed) > *before)
                });
            });
            let roots = tasks(&trace).into_iter().filter(|(name, ..)| *name == "shared").collect::<Vec<_>>();
            // Threads that see the first entry of a trace at the same time may each begin the task; one remains.
            assert!((1..=4).contains(&roots.len()) && ended(&trace).len() >= roots.len() - 1, "{roots:?}");
        }
        STOP.store(true, Relaxed);
        others.into_iter().for_each(|thread| thread.join().expect("it ends"));
    });
}

/// What is sampled inside spans has their labels, whether a trace is recorded or not.
#[test]
fn spans_are_labels() {
    child::isolated("spans_are_labels", || {
        let layer = rtprof::tracing::layer().with_labels(&["route", "user"]);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::set_global_default(subscriber).expect("it is the only one");
        let labels = || {
            let mut labels = String::new();
            rtprof::pprof::for_labels(|key, value| {
                labels += &format!("{key}={value} ");
                true
            });
            labels
        };
        let check = || {
            let outer = info_span!("request", route = "/a", user = 7, secret = "x");
            let inner = info_span!("query", route = %"/b").entered();
            assert_eq!(labels(), "route=/b span=query ");
            outer.in_scope(|| assert_eq!(labels(), "route=/a span=request user=7 "));
            assert_eq!(labels(), "route=/b span=query ");
            drop(inner);
            assert_eq!(labels(), "");
            // Left in another order than usual.
            let (outer, inner) = (outer.entered(), info_span!("query").entered());
            assert_eq!(labels(), "route=/a span=query user=7 ");
            let outer = outer.exit();
            assert_eq!(labels(), "route=/a span=query user=7 ");
            drop(inner);
            assert_eq!(labels(), "");
            // A field without a value when the span is created is none.
            info_span!("late", user = tracing::field::Empty).in_scope(|| assert_eq!(labels(), "span=late "));
            drop(outer);
        };
        check();
        record(check);
    });
}
