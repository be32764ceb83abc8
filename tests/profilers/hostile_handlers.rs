//! Signal handlers of the program that run on alternate stacks, which have no room for a second handler.
#![cfg(target_os = "linux")]

use std::ffi::c_int;
use std::hint::black_box;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::scope;
use std::time::{Duration, Instant};

use rtprof::pprof::{self, CpuProfileOptions};
use test_support::{Background, child, rounds, until};

static ENDED: AtomicU64 = AtomicU64::new(0);

/// Computes for some periods of the CPU profile, and uses most of what the kernel's frame leaves of std's 8 KiB.
pub(crate) extern "C" fn computes(_: c_int) {
    let mut room = [1_u8; 3 << 10];
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(3) {
        black_box(&mut room);
    }
    ENDED.fetch_add(1, Relaxed);
}

fn install() {
    // SAFETY: an all-zero `sigaction` is valid; the handler does nothing that a handler may not do.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = computes as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
    }
}

/// Whether the handler's mask has more than the program has put into it.
fn is_seen() -> bool {
    // SAFETY: an all-zero `sigaction` is valid, and the calls write to it or read it.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        assert_eq!(libc::sigaction(libc::SIGUSR1, null_mut(), &raw mut action), 0);
        (1..=31).any(|signal| libc::sigismember(&raw const action.sa_mask, signal) == 1)
    }
}

/// Enters the handler on a thread that std has given an alternate stack, while the other threads are asked for their stacks
/// and sampled.
fn handles(when: &Background) {
    let count = rounds(50, 500);
    scope(|scope| {
        let _ends = when.ends_here();
        scope.spawn(|| when.repeat(|| drop(rtprof::goroutine_profile())));
        let thread = scope.spawn(|| {
            // SAFETY: the signal has a handler.
            (0..count).for_each(|_| assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0));
        });
        thread.join().expect("it ends well");
    });
    assert_eq!(ENDED.load(Relaxed), count);
}

fn sample() {
    let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
    pprof::start_cpu_profile_with(std::io::sink(), options).expect("no other profile goes on");
}

#[test]
fn installed_before() {
    child::isolated("installed_before", || {
        install();
        sample();
        handles(&Background::default());
        pprof::stop_cpu_profile().expect("it goes on");
    });
}

#[test]
fn installed_while_samples_are_taken() {
    child::isolated("installed_while_samples_are_taken", || {
        sample();
        install();
        until("the handler is seen", is_seen);
        handles(&Background::default());
        pprof::stop_cpu_profile().expect("it goes on");
    });
}
