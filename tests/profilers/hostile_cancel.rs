//! Threads of C are cancelled while they are sampled and asked for their stacks. The C library's signal for that must not be
//! handled within a handler of ours: its unwinding would begin on our stack, where it ends the process.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::io::pipe;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rtprof::pprof::{self, CpuProfileOptions};
use test_support::{Background, child, rounds, until};

/// The function of a thread of C, which cancellation unwinds out of.
pub(crate) type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C-unwind" {
    pub(crate) fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
    fn read(descriptor: c_int, bytes: *mut c_void, count: usize) -> isize;
    pub(crate) fn write(descriptor: c_int, bytes: *const c_void, count: usize) -> isize;
    pub(crate) fn nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int;
}

pub(crate) const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// How often a thread has gone round since it began.
static GONE_ROUND: AtomicU64 = AtomicU64::new(0);

/// Computes. It may be cancelled anywhere.
pub(crate) extern "C-unwind" fn computes(_: *mut c_void) -> *mut c_void {
    // SAFETY: the call writes nothing. What follows may be unwound anywhere: it has nothing to drop, and holds nothing.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, null_mut()) };
    loop {
        GONE_ROUND.fetch_add(1, Relaxed);
    }
}

/// Sleeps for an instant, again and again. It may be cancelled anywhere: before a sleep, in it and after it. (POSIX forbids the
/// call then, but the C library allows it.)
extern "C-unwind" fn sleeps(_: *mut c_void) -> *mut c_void {
    let instant = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    // SAFETY: the calls write nothing. What follows may be unwound anywhere: it has nothing to drop, and holds nothing.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, null_mut()) };
    loop {
        GONE_ROUND.fetch_add(1, Relaxed);
        // SAFETY: reads a local.
        unsafe { nanosleep(&raw const instant, null_mut()) };
    }
}

/// Makes system calls all the time. It is cancelled in one.
extern "C-unwind" fn writes(descriptor: *mut c_void) -> *mut c_void {
    loop {
        GONE_ROUND.fetch_add(1, Relaxed);
        // SAFETY: the call reads nothing.
        unsafe { write(descriptor.addr() as c_int, null(), 0) };
    }
}

/// Waits in a system call. It is cancelled in it.
pub(crate) extern "C-unwind" fn reads(descriptor: *mut c_void) -> *mut c_void {
    let mut byte = 0u8;
    loop {
        GONE_ROUND.fetch_add(1, Relaxed);
        // SAFETY: the call writes to a local.
        unsafe { read(descriptor.addr() as c_int, (&raw mut byte).cast(), 1) };
    }
}

/// Starts a thread, and cancels it once it has begun.
pub(crate) fn begin_and_cancel(start: Start, descriptor: c_int) {
    GONE_ROUND.store(0, Relaxed);
    // SAFETY: the thread is joined, and has nothing to drop.
    unsafe {
        let mut thread = std::mem::zeroed();
        let argument = std::ptr::without_provenance_mut(descriptor as usize);
        assert_eq!(pthread_create(&raw mut thread, null(), start, argument), 0);
        until("it has begun", || GONE_ROUND.load(Relaxed) > 0);
        let mut value = null_mut();
        assert_eq!(libc::pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut value), 0);
        assert_eq!(value.addr(), usize::MAX, "it was cancelled");
    }
}

fn cancelled_under_signals(test: &str, start: Start) {
    child::isolated(test, || {
        let (empty, _writer) = pipe().expect("a pipe");
        let null = std::fs::File::options().write(true).open("/dev/null").expect("it exists");
        let descriptor =
            if start as usize == reads as *const () as usize { empty.as_raw_fd() } else { null.as_raw_fd() };
        let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
        pprof::start_cpu_profile_with(std::io::sink(), options).expect("no other profile goes on");
        let background = Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| background.repeat(|| drop(rtprof::goroutine_profile())));
            (0..rounds(200, 2000)).for_each(|_| begin_and_cancel(start, descriptor));
        });
        pprof::stop_cpu_profile().expect("it goes on");
    });
}

#[test]
fn in_the_middle_of_a_computation() {
    cancelled_under_signals("in_the_middle_of_a_computation", computes);
}

/// With a trace, whose recording of each sleep takes longer than the rest.
#[test]
fn anywhere_while_a_trace_is_recorded() {
    child::isolated("anywhere_while_a_trace_is_recorded", || {
        rtprof::set_block_profile_rate(1);
        rtprof::set_block_profile_kinds(rtprof::BlockKinds::all());
        rtprof::trace::start(std::io::sink()).expect("no other trace goes on");
        (0..rounds(500, 5000)).for_each(|_| begin_and_cancel(sleeps, -1));
        rtprof::trace::stop().expect("it goes on");
    });
}

#[test]
fn in_short_system_calls() {
    cancelled_under_signals("in_short_system_calls", writes);
}

#[test]
fn in_a_long_system_call() {
    cancelled_under_signals("in_a_long_system_call", reads);
}
