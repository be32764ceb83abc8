//! Traces that are stopped while they start, and readers that outlive their traces.
#![cfg(target_os = "linux")]

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rtprof::trace::{self, Reader, TraceError};
use rtprof::{collector, thread};
use test_support::recording::{assert_works, record};
use test_support::{Background, child, stress};

/// The first start of a process takes some milliseconds, during which the trace can be stopped.
#[test]
fn a_stop_during_the_start_is_not_lost() {
    for round in 0..5 {
        child::isolated_as("a_stop_during_the_start_is_not_lost", &round.to_string(), || {
            let begins = AtomicBool::new(false);
            std::thread::scope(|s| {
                let stopper = s.spawn(|| {
                    while !begins.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    loop {
                        match trace::stop() {
                            Err(TraceError::NotStarted) => std::hint::spin_loop(),
                            stopped => return stopped,
                        }
                    }
                });
                begins.store(true, Ordering::Release);
                trace::start(io::sink()).expect("no trace goes on");
                stopper.join().expect("it ends well").expect("a sink takes everything");
            });
            assert!(!trace::is_enabled());
            assert_works();
        });
    }
}

#[test]
fn a_reader_of_a_trace_that_is_over_ends_no_other() {
    child::isolated("a_reader_of_a_trace_that_is_over_ends_no_other", || {
        let mut old = Reader::start().expect("no trace goes on");
        old.stop();
        old.read_to_end(&mut Vec::new()).expect("memory takes everything");
        trace::stop().expect("everything was read");
        trace::start(io::sink()).expect("the one before is over");
        old.stop();
        drop(old);
        assert!(trace::is_enabled());
        trace::stop().expect("a sink takes everything");
        assert_works();
    });
}

/// Tasks and collections that begin in one trace do not end in the next one.
#[test]
fn nothing_goes_from_one_trace_to_the_next() {
    child::isolated("nothing_goes_from_one_trace_to_the_next", || {
        trace::start(io::sink()).expect("no trace goes on");
        let task = trace::Task::new("of the first");
        let region = trace::start_region("of the first");
        let parsed = collector::collect(|| {
            collector::sweep(|sweep| {
                sweep.swept(7);
                collector::assist(|| {
                    trace::stop().expect("a sink takes everything");
                    record(|| {
                        let _child = task.child("of the second");
                        collector::collect(|| ());
                        drop(region);
                        drop(task);
                    })
                })
            })
        })
        .parsed;
        for event in parsed.events() {
            assert_ne!(event.name(), "of the first", "{:?}", event.event_type());
        }
        use rtprof_trace_check::EventType::{
            GcStart, GcSweepDone, GcSweepStart, UserTaskCreate, UserTaskEnd,
        };
        assert_eq!((parsed.count(GcSweepStart), parsed.count(GcSweepDone)), (0, 0));
        assert_eq!((parsed.count(UserTaskCreate), parsed.count(UserTaskEnd)), (1, 1));
        // The first collection is still under way.
        assert_eq!(parsed.count(GcStart), 0);
        assert_eq!(parsed.events_of(UserTaskCreate).next().and_then(|task| task.argument("pid")), Some(0));
    });
}

/// Traces start and stop, without a check of their contents, while threads begin and end.
#[test]
fn a_storm_of_sessions() {
    child::isolated("a_storm_of_sessions", || {
        let background = Background::default();
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            for _ in 0..4 {
                s.spawn(|| {
                    background.repeat(|| {
                        let thread = thread::spawn(|| trace::log("storm", "a thread"));
                        thread.join().expect("it ends well");
                    });
                });
            }
            let (started, mut sessions) = (std::time::Instant::now(), 0);
            while started.elapsed() < stress() || sessions < 50 {
                sessions += 1;
                let reader = Reader::start().expect("the one before is over");
                std::thread::sleep(Duration::from_millis(2));
                drop(reader);
            }
        });
        assert_works();
    });
}
