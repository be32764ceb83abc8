//! Sampling where the kernel, or a filter of system calls, refuses the calls that it needs.

use std::io;
use std::time::Duration;

use rtprof::pprof::{self, CpuProfileError, CpuProfileOptions, CpuSource, SampledBy};
use test_support::processor::burn;
use test_support::signals::disposition;
use test_support::{child, descriptors, sandbox, skipped};

use super::hosts::handle_all_candidates;
use super::work::{SOURCES, by, profiled, samples_and_missed, samples_of, sum};

#[test]
fn without_perf_there_are_timers() {
    child::isolated("without_perf_there_are_timers", || {
        sandbox::refuse(&[libc::SYS_perf_event_open]).expect("a filter");
        let (used, profile, stats) = profiled(by(CpuSource::Auto, 1000), || burn(Duration::from_millis(100)));
        assert!(
            matches!(&stats.sampled_by, SampledBy::Timers { refused: Some(error) } if error.contains("not permitted"))
        );
        let comments = profile.comments();
        assert!(
            comments.contains("by timers of each thread; perf_event_open: Operation not permitted"),
            "{comments}"
        );
        let (found, due) = (samples_and_missed(&profile, "burn"), used.as_millis() as i64);
        assert!((found - due).abs() <= 20, "{found} of {due}");
        let error = pprof::start_cpu_profile_with(io::sink(), by(CpuSource::Perf, 100)).unwrap_err();
        assert!(
            matches!(error, CpuProfileError::NoPerf(_)) && error.to_string().contains("perf_event_paranoid"),
            "{error}"
        );
    });
}

#[test]
fn without_any_source_there_is_an_error_and_nothing_else() {
    child::isolated("without_any_source_there_is_an_error_and_nothing_else", || {
        let before = (descriptors::open(), disposition(libc::SIGURG));
        sandbox::refuse(&[libc::SYS_perf_event_open, libc::SYS_timer_create]).expect("a filter");
        let error = pprof::start_cpu_profile(io::sink()).unwrap_err();
        assert!(matches!(error, CpuProfileError::NoSource { .. }), "{error}");
        let says = error.to_string();
        assert!(says.contains("no timers") && says.contains("does not permit perf_event_open"), "{says}");
        assert_eq!((descriptors::open(), disposition(libc::SIGURG)), before);
    });
}

#[test]
fn without_a_signal_there_is_an_error() {
    child::isolated("without_a_signal_there_is_an_error", || {
        handle_all_candidates();
        let error = pprof::start_cpu_profile(io::sink()).unwrap_err();
        assert!(
            matches!(error, CpuProfileError::NoSignal) && error.to_string().contains("SIGPROF"),
            "{error}"
        );
    });
}

#[test]
fn threads_that_may_not_be_signalled_are_not() {
    child::isolated("threads_that_may_not_be_signalled_are_not", || {
        rtprof::set_thread_signals(false);
        let error = pprof::start_cpu_profile(io::sink()).unwrap_err();
        assert!(matches!(error, CpuProfileError::SignalsOff), "{error}");
        rtprof::set_thread_signals(true);
        profiled(CpuProfileOptions::default(), || ());
    });
}

/// The sampler takes a quarter of the descriptors at most; the other threads have timers.
#[test]
fn descriptors_are_left_to_the_program() {
    child::isolated("descriptors_are_left_to_the_program", || {
        descriptors::allow(80);
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        let threads: Vec<_> = (0..30)
            .map(|_| {
                let ends = ends.clone();
                std::thread::spawn(move || _ = ends.lock().unwrap().recv())
            })
            .collect();
        let before = descriptors::open();
        let (most, profile, _) = profiled(by(CpuSource::Auto, 1000), || {
            burn(Duration::from_millis(50));
            descriptors::open()
        });
        // In addition, the descriptors that the collector itself may have open at that moment.
        assert!(most - before <= 22, "{most} open, {before} before");
        let comments = profile.comments();
        assert!(comments.contains("threads had timers instead"), "{comments}");
        drop(end);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// If the kernel gives a thread no timer, the profile reports the thread's time, and the reason.
#[test]
fn threads_without_a_timer_are_told_of() {
    child::isolated("threads_without_a_timer_are_told_of", || {
        let (done, is_done) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (thread, profile, _) = profiled(by(CpuSource::Timers, 1000), || {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a plain call, which reads a local.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) }, 0);
            let thread = std::thread::spawn(move || {
                done.send(burn(Duration::from_millis(50))).unwrap();
                // The thread lives until after the profile.
                ends.recv().ok();
            });
            is_done.recv().unwrap();
            thread
        });
        drop(end);
        thread.join().unwrap();
        let (missed, blocked) =
            (samples_of(&profile, "cpu_time_not_sampled"), samples_of(&profile, "thread_blocks_signals"));
        assert!(missed >= 40 && blocked == 0, "{missed} missed, {blocked} blocked");
        let comments = profile.comments();
        assert!(comments.contains("gave no timer for "), "{comments}");
    });
}

/// The text about a thread in /proc grows with each group that the thread is in.
#[test]
fn threads_in_many_groups_are_sampled() {
    child::isolated("threads_in_many_groups_are_sampled", || {
        let groups: Vec<libc::gid_t> = (0..2_000).map(|n| 1_000_000_000 + n).collect();
        // SAFETY: the call reads `groups.len()` numbers from the vector.
        if unsafe { libc::setgroups(groups.len(), groups.as_ptr()) } != 0 {
            return skipped("threads_in_many_groups_are_sampled", "only root may choose groups");
        }
        for source in SOURCES {
            let (used, profile, _) = profiled(by(source, 1000), || burn(Duration::from_millis(50)));
            let found = samples_and_missed(&profile, "threads_in_many_groups_are_sampled");
            assert!(found >= used.as_millis() as i64 - 3, "{found} of {used:?}, {source:?}");
        }
    });
}

/// Threads that cannot be listed at the beginning, and can be later, are not taken for new threads: their earlier work
/// does not belong to this profile.
#[test]
fn history_is_not_counted() {
    child::isolated("history_is_not_counted", || {
        burn(Duration::from_millis(500));
        descriptors::allow(200);
        let mut all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let work = || {
            all.clear();
            burn(Duration::from_millis(50))
        };
        let (used, profile, _) = profiled(by(CpuSource::Auto, 1000), work);
        let (found, due) = (sum(&profile.samples()).0, used.as_millis() as i64);
        assert!(found <= due + 100, "{found} of {due}");
    });
}
