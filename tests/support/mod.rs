//! Code shared by the end-to-end tests: a decoder that is independent of our encoder, the real Go tools, and separate
//! processes for tests that must not share one.
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

/// Makes every test binary check the events of all traces while they are written.
extern "C" fn check_events() {
    rtprof_trace_out::self_check::check_events_with(rtprof_trace_check::event_check);
}

#[cfg(target_os = "linux")]
#[used]
// SAFETY: the constructor only sets a word.
#[unsafe(link_section = ".init_array")]
static CHECK_EVENTS: extern "C" fn() = check_events;

/// Returns how long a stress test runs: `RTPROF_STRESS_SECS`, by default 1 s. Each test also does a minimum number of
/// rounds.
pub(crate) fn stress() -> Duration {
    let seconds = std::env::var("RTPROF_STRESS_SECS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

/// Returns `all` in a long run (`RTPROF_STRESS_SECS` of 30 and more, as in `ci/long.sh`), otherwise `few`.
pub(crate) fn rounds<N>(few: N, all: N) -> N {
    if stress() >= Duration::from_secs(30) { all } else { few }
}

/// Work for threads beside a test's own; ends with the test.
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

    /// Returns a guard that ends the work when dropped, by a panic too, so that a failure is reported instead of a
    /// hang.
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

/// Longer than any step takes on the busiest machine, short enough to notice a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns when `done` returns true; fails if that takes a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reports that a test was not run. `eprintln!` does not serve, because the harness hides its output when a test
/// passes.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {test}: {why}").ok();
}
