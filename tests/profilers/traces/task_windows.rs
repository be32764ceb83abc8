//! Windows of a flight recorder, of a program whose tasks come and go.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rtprof::task::Instrument;
use rtprof::trace::{self, FlightRecorder, Options};
use test_support::churn::{churn, workers};
use test_support::recording::{assert_works, parse, saved};
use test_support::{Background, child, go, until};

/// Returns a window.
#[track_caller]
fn window(flight: &FlightRecorder) -> Vec<u8> {
    let mut bytes = Vec::new();
    flight.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}

#[test]
fn a_storm_of_tasks() {
    child::isolated("a_storm_of_tasks", || {
        let wanted = std::env::var("RTPROF_WINDOWS").map_or(100, |n| n.parse().expect("a number"));
        // Each window has a few generations, so that tasks begin, wait and end across their bounds.
        let options =
            Options { max_bytes: 256 << 10, min_age: Duration::from_millis(50), ..Options::default() };
        let flight = FlightRecorder::new(options);
        flight.start().expect("no other one is enabled");
        let runtime = workers(2);
        let (background, ended, written) = (Background::default(), AtomicU64::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                background.repeat(|| {
                    runtime.block_on(churn(&ended).instrument_named("churns"));
                    // Without a pause most of the test's time would go to the reading of windows.
                    std::thread::sleep(Duration::from_millis(1));
                });
            });
            scope.spawn(|| {
                background.repeat(|| {
                    trace::start(std::io::sink()).expect("no other trace goes on");
                    for _ in 0..5 {
                        runtime.block_on(churn(&ended).instrument_named("churns"));
                    }
                    trace::stop().expect("a sink takes everything");
                });
            });
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let (flight, written) = (&flight, &written);
                    scope.spawn(move || {
                        while written.fetch_add(1, Relaxed) < wanted {
                            parse(&window(flight), "task-windows");
                        }
                    });
                }
            });
            let mut last = Vec::new();
            until("tasks wait in a window", || {
                last = window(&flight);
                let parsed = parse(&last, "task-window");
                let churned: Vec<_> = parsed.goroutines_named("churned").collect();
                parsed.events().any(|event| {
                    event.event_type().name().starts_with("GoBlock") && churned.contains(&event.g())
                })
            });
            let path = saved("a-storm-of-tasks", &last);
            for (go, _) in go::trace_toolchains("a_storm_of_tasks") {
                if go.version.starts_with("1.27") {
                    go.trace_events(&path);
                }
            }
        });
        flight.stop();
        assert_works();
    });
}
