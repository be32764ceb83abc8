use std::hint::black_box;
use std::time::Duration;

use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::stack::marker;
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

use super::*;

/// Serialises the tests, because a process has one sampling at a time.
fn alone() -> impl Drop {
    static ALONE: ForkLock = ForkLock::new();
    ALONE.lock()
}

/// Returns the processor time that the current thread has used.
fn used() -> Duration {
    Duration::from_nanos(sampler::cpu_time::own().unwrap())
}

/// Uses at least this much processor time, and returns how much it was.
#[inline(never)]
fn burn(time: Duration) -> Duration {
    let start = used();
    while used() - start < time {
        for i in 0..1000 {
            black_box(i);
        }
    }
    used() - start
}

#[test]
fn a_sampling_counts_the_periods_of_each_thread() {
    let _alone = alone();
    // A timer signals a thread at the kernel's ticks only. Beside other programs a tick may find it only each 10 ms of its
    // time or later.
    for (source, hz, periods) in [(CpuSource::Perf, 1000, 100), (CpuSource::Timers, 100, 30)] {
        let period = Duration::from_secs(1) / hz;
        let before = used();
        let sampler = start(Options { hz, source, by_thread: true, for_trace: false }).unwrap();
        let least = burn(periods * period);
        let samples = sampler.stop().unwrap();
        // Some of the time that it takes to start and to stop is sampled, and a busy machine makes it milliseconds.
        let most = used() - before;
        assert_eq!(u128::from(samples.period_nanos), period.as_nanos());
        let own = samples.counts.iter().filter(|count| count.thread == kernel_thread_id());
        let sum: u64 = own.map(|count| count.samples).sum();
        let sampled = sum as u32 * period;
        let rounding = 3 * period;
        assert!(sampled + rounding >= least, "{sampled:?} of {least:?} to {most:?}, {source:?}");
        assert!(sampled <= most + rounding, "{sampled:?} of {least:?} to {most:?}, {source:?}");
        let marker = marker::frame(marker::stack_not_captured);
        assert!(samples.counts.iter().all(|count| !count.stack.contains(&marker)));
    }
}

#[test]
fn a_profile_takes_the_place_of_samples_for_a_trace() {
    let _alone = alone();
    let start = |for_trace| start(Options { hz: 100, source: CpuSource::Auto, by_thread: false, for_trace });
    let is_refused =
        |other: Result<Sampler, CpuProfileError>| matches!(other, Err(CpuProfileError::AlreadyStarted));
    let first = start(true).unwrap();
    assert!(is_refused(start(true)) && !first.has_ended());
    let profile = start(false).unwrap();
    assert!(first.has_ended() && !profile.has_ended());
    assert!(is_refused(start(true)) && is_refused(start(false)));
    // The drop of a sampling that is over does not end another one.
    drop(first);
    assert!(is_refused(start(false)) && !profile.has_ended());
    assert!(profile.stop().is_some());
    let last = start(true).unwrap();
    burn(Duration::from_millis(30));
    assert!(last.stop().unwrap().counts.is_empty(), "they are the trace's alone");
}
