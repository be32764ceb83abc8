//! Calls of hooks while nothing is recorded.

use std::arch::asm;
use std::hint::black_box;

use rtprof::trace::{self, WaitKind};
use rtprof_benches::processor::Stopwatch;

/// A call that is measured in a loop.
trait Hook {
    fn call();
}

macro_rules! hooks {
    ($($name:ident = $call:expr;)*) => {
        $(
            struct $name;

            impl Hook for $name {
                #[inline(always)]
                fn call() {
                    $call
                }
            }
        )*
    };
}

hooks! {
    // The work that all hooks do besides.
    Nothing = work();
    IsEnabled = { black_box(trace::is_enabled()); work() };
    WithRegion = trace::with_region("step", work);
    Log = { trace::log("request", "a message"); work() };
    Syscall = trace::syscall(work);
    Wait = trace::wait(WaitKind::Net, work);
}

#[inline(always)]
fn work() {
    black_box(());
}

type Turns = fn(copy: usize, count: usize) -> f64;

pub(crate) fn of(hook: &str) -> Turns {
    match hook {
        "nothing" => timed::<Nothing>,
        "is-enabled" => timed::<IsEnabled>,
        "with-region" => timed::<WithRegion>,
        "log" => timed::<Log>,
        "syscall" => timed::<Syscall>,
        "wait" => timed::<Wait>,
        other => panic!("unknown hook {other}"),
    }
}

/// Returns the nanoseconds for a call, in the loop's copy of this number.
fn timed<H: Hook>(copy: usize, count: usize) -> f64 {
    let turns = copies::<H>()[copy];
    turns(count / 8);
    let watch = Stopwatch::start();
    turns(count);
    watch.nanos_each(count)
}

/// Returns two copies of the loop at each of four places within a cache line: as for locks, the place of a loop this
/// short in memory is visible in its time.
fn copies<H: Hook>() -> [fn(usize); 8] {
    [
        turns::<H, 0>,
        turns::<H, 1>,
        turns::<H, 2>,
        turns::<H, 3>,
        turns::<H, 4>,
        turns::<H, 5>,
        turns::<H, 6>,
        turns::<H, 7>,
    ]
}

#[inline(never)]
fn turns<H: Hook, const COPY: usize>(count: usize) {
    // SAFETY: the assembly has only `nop`s, and a comment that keeps the copies from being merged.
    unsafe {
        asm!(
            ".p2align 6",
            ".rept {bytes}",
            "nop",
            ".endr",
            "/* copy {copy} */",
            bytes = const COPY % 4 * 16,
            copy = const COPY,
            options(nomem, nostack, preserves_flags),
        );
    }
    for _ in 0..count {
        H::call();
    }
}
