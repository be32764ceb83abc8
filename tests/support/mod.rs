//! What the end-to-end tests share: a decoder that knows nothing of our encoder, the real Go tools,
//! and processes of their own for what must not share one.
#![allow(dead_code, reason = "every test uses its own part of this")]

pub(crate) mod address_space;
pub(crate) mod child;
pub(crate) mod contention;
pub(crate) mod descriptors;
pub(crate) mod dying;
pub(crate) mod fixture;
#[cfg(target_arch = "x86_64")]
pub(crate) mod foreign_stack;
pub(crate) mod fork;
pub(crate) mod go;
pub(crate) mod inner;
pub(crate) mod library;
pub(crate) mod processor;
pub(crate) mod profile;
pub(crate) mod random;
pub(crate) mod room;
pub(crate) mod sandbox;
pub(crate) mod signals;
pub(crate) mod threads;
pub(crate) mod top;
pub(crate) mod web;
pub(crate) mod workload;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// In every test binary the events of all traces are checked as they are written.
extern "C" fn check_events() {
    rtprof_trace_out::self_check::check_events_with(rtprof_trace_check::event_check);
}

#[cfg(target_os = "linux")]
#[used]
// SAFETY: a constructor, which sets a word.
#[unsafe(link_section = ".init_array")]
static CHECK_EVENTS: extern "C" fn() = check_events;

/// How long a stress test keeps on: `RTPROF_STRESS_SECS`, 1 s unless told. Each does a least number of rounds besides.
pub(crate) fn stress() -> Duration {
    let seconds = std::env::var("RTPROF_STRESS_SECS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

/// Work for threads beside a test's own, ended with it.
#[derive(Default)]
pub(crate) struct Background {
    stop: AtomicBool,
}

impl Background {
    /// Repeats `work` until the guard of [`Background::ends_here`] is dropped.
    pub(crate) fn repeat(&self, work: impl Fn()) {
        while !self.stop.load(Relaxed) {
            work();
        }
    }

    /// Ends the work when dropped, by a panic too, so that a failure is seen and not a hang.
    pub(crate) fn ends_here(&self) -> impl Drop {
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        Ends(&self.stop)
    }
}

/// Longer than anything takes on the busiest machine, short enough to notice a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns when `done` does; fails if that takes a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says that a test was not run. Not by `eprintln!`, which the harness keeps to itself when a test passes.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {test}: {why}").ok();
}
