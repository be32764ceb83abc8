//! How far the clocks of threads disagree on this machine: the control for how far a trace moves events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, yield_now};
use std::time::Duration;

use rtprof_runtime::clock;

const ROUNDS: u64 = 20_000;

/// Returns the most by which a tick that one thread read after another thread's seemed to be earlier, as in the events
/// of a wake and of its effect. The result is a microsecond at least: 20,000 rounds may not meet the largest skew.
pub(super) fn measured() -> Duration {
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    // The ticks of two rounds differ, so a new value is a new message.
    let next = |from: &AtomicU64, last: u64| {
        loop {
            let cause = from.load(Ordering::Acquire);
            if cause != last {
                let effect = clock::ticks_after_loads();
                return (cause, cause.saturating_sub(effect));
            }
            yield_now();
        }
    };
    let play = |first: bool| {
        let (own, others) = if first { (&asked, &answered) } else { (&answered, &asked) };
        let (mut last, mut most, mut told) = (0, 0, 0);
        for _ in 0..ROUNDS {
            if !first {
                let (cause, inversion) = next(others, last);
                (last, most) = (cause, most.max(inversion));
            }
            told = clock::ticks().max(told + 1);
            own.store(told, Ordering::Release);
            if first {
                let (cause, inversion) = next(others, last);
                (last, most) = (cause, most.max(inversion));
            }
        }
        most
    };
    let most = scope(|scope| {
        let other = scope.spawn(|| play(false));
        play(true).max(other.join().expect("it ends well"))
    });
    let nanos = u128::from(most) * 1_000_000_000 / u128::from(clock::ticks_per_second());
    Duration::from_nanos(nanos as u64).max(Duration::from_micros(1))
}
