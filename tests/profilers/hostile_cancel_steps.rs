//! Threads of C are cancelled at each instruction of a call of the C library: the processor stops them after each one. In
//! functions of Rust the unwinder ends the process at most instructions, so none may run.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_support::child;

use crate::hostile_cancel::{
    PTHREAD_CANCEL_ASYNCHRONOUS, nanosleep, pthread_create, pthread_setcanceltype, write,
};

/// How many instructions the thread is still to execute until it is cancelled.
static LEFT: AtomicU64 = AtomicU64::new(0);

type Call = extern "C-unwind" fn();

extern "C-unwind" fn sleeps() {
    let instant = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    // SAFETY: reads a local.
    unsafe { nanosleep(&raw const instant, null_mut()) };
}

extern "C-unwind" fn sleeps_for_no_time() {
    // SAFETY: without preconditions.
    unsafe { usleep(0) };
}

extern "C-unwind" fn fails_to_write() {
    // SAFETY: reads nothing.
    unsafe { write(-1, null(), 0) };
}

extern "C-unwind" fn waits_for_no_file() {
    // SAFETY: reads no list.
    unsafe { poll(null_mut(), 0, 0) };
}

extern "C-unwind" fn wakes_no_thread() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the word is valid, and no thread waits for it.
    unsafe { syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAKE, 1, 0, 0, 0) };
}

extern "C-unwind" fn does_not_wait() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the word is valid, and has another value.
    unsafe { syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAIT, 1, 0, 0, 0) };
}

extern "C-unwind" fn fails_at_once() {
    // SAFETY: no such call exists.
    unsafe { syscall(-1) };
}

extern "C-unwind" fn yields() {
    // SAFETY: without preconditions.
    unsafe { sched_yield() };
}

extern "C-unwind" fn is_renamed() {
    // SAFETY: reads a literal.
    unsafe { pthread_setname_np(libc::pthread_self(), c"renamed".as_ptr()) };
}

extern "C-unwind" fn may_be_cancelled_still() {
    // SAFETY: writes nothing.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, null_mut()) };
}

unsafe extern "C-unwind" {
    fn usleep(micros: u32) -> c_int;
    fn poll(list: *mut libc::pollfd, count: libc::nfds_t, millis: c_int) -> c_int;
    fn sched_yield() -> c_int;
    fn pthread_setname_np(thread: libc::pthread_t, name: *const std::ffi::c_char) -> c_int;
    fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
}

/// After each instruction of a thread that is stepped through.
extern "C-unwind" fn stepped(_: c_int) {
    if LEFT.fetch_sub(1, Relaxed) == 1 {
        // SAFETY: the thread is cancelled here, or goes on.
        unsafe { libc::pthread_cancel(libc::pthread_self()) };
    }
}

/// Makes the call step by step. It may be cancelled anywhere in it.
extern "C-unwind" fn steps(call: *mut c_void) -> *mut c_void {
    // SAFETY: `is_cancelled_at` passes the address of such a function. The instructions set the processor's trap flag
    // for the time of the call. What may be unwound has nothing to drop, and holds nothing.
    unsafe {
        let call = std::mem::transmute::<*mut c_void, Call>(call);
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, null_mut());
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        call();
        std::arch::asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq");
        pthread_setcanceltype(0, null_mut());
    }
    null_mut()
}

/// Makes the call in a thread that is cancelled after so many instructions. Returns whether it was.
fn is_cancelled_at(call: Call, instructions: u64) -> bool {
    LEFT.store(instructions, Relaxed);
    // SAFETY: the thread is joined, and has nothing to drop.
    unsafe {
        let mut thread = std::mem::zeroed();
        assert_eq!(pthread_create(&raw mut thread, null(), steps, call as *mut c_void), 0);
        let mut value = null_mut();
        assert_eq!(libc::pthread_join(thread, &raw mut value), 0);
        value.addr() == usize::MAX
    }
}

fn cancelled_at_each() {
    let calls: [(Call, &str); _] = [
        (sleeps, "nanosleep"),
        (sleeps_for_no_time, "usleep"),
        (fails_to_write, "write"),
        (waits_for_no_file, "poll"),
        (wakes_no_thread, "syscall, to wake"),
        (does_not_wait, "syscall, to wait"),
        (fails_at_once, "syscall"),
        (yields, "sched_yield"),
        (is_renamed, "pthread_setname_np"),
        (may_be_cancelled_still, "pthread_setcanceltype"),
    ];
    for (call, name) in calls {
        let count = (1..).find(|&at| !is_cancelled_at(call, at)).expect("the call ends");
        assert!((10..10_000).contains(&count), "{name}: {count} instructions");
    }
}

#[test]
fn in_calls_of_the_c_library() {
    child::isolated("in_calls_of_the_c_library", || {
        // SAFETY: the handler is a function of this type, and does what it may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = stepped as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()), 0);
        }
        cancelled_at_each();
        rtprof::set_block_profile_rate(1);
        rtprof::set_block_profile_kinds(rtprof::BlockKinds::all());
        rtprof::trace::start(std::io::sink()).expect("no other trace goes on");
        cancelled_at_each();
        rtprof::trace::stop().expect("it goes on");
    });
}
