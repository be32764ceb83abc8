use std::hint::black_box;
use std::time::Duration;

use rtprof_runtime::fork_lock::ForkLock;
use rtprof_runtime::kernel_thread::thread_id as kernel_thread_id;
use rtprof_runtime::stack::marker;

use super::*;

/// Serialises the tests, because a process has one sampling at a time.
fn alone() -> impl Drop {
    static ALONE: ForkLock = ForkLock::new();
    ALONE.lock()
}

/// Uses at least this much processor time, and returns how much it was.
#[inline(never)]
fn burn(time: Duration) -> Duration {
    let used = || Duration::from_nanos(sampler::cpu_time::own().unwrap());
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
    for source in [CpuSource::Perf, CpuSource::Timers] {
        let sampler = start(Options { hz: 1000, source, by_thread: true, for_trace: false }).unwrap();
        let used = burn(Duration::from_millis(100)).as_millis() as u64;
        let samples = sampler.stop().unwrap();
        assert_eq!(samples.period_nanos, 1_000_000);
        let own = samples.counts.iter().filter(|count| count.thread == kernel_thread_id());
        let sum: u64 = own.map(|count| count.samples).sum();
        assert!(sum.abs_diff(used) <= 3, "{sum} of {used}, {source:?}");
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
