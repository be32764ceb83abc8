//! Stacks that leave a hook little room: small threads, coroutines, alternate signal stacks; and stacks that the
//! program switches to by itself, which may be unmapped between two samples.
//!
//! A sample may be dropped there, and is counted then; the program never dies of it, and a reported stack is whole.
//! `hostile_main_stack` does the same to the main thread's stack.
#![cfg(target_os = "linux")]

use std::hint::black_box;
use std::ptr::null_mut;

use test_support::child;
use test_support::room::{ENOUGH, LEAST, ROUNDS, deeper, given_up, profile, recorded, some_objects};

#[inline(never)]
fn in_a_thread() {
    some_objects();
    black_box(());
}

#[test]
fn a_small_thread() {
    child::isolated("a_small_thread", || {
        rtprof::set_mem_profile_rate(1);
        // Debug builds of std need more than the least size that the C library accepts.
        let size = if cfg!(debug_assertions) { 32 << 10 } else { 16 << 10 };
        std::thread::Builder::new()
            .stack_size(size)
            .spawn(in_a_thread)
            .expect("a thread can be made")
            .join()
            .expect("it ends well");
        let profile = profile();
        assert_eq!(recorded(&profile, &["in_a_thread"]), ROUNDS, "{}", profile.comments());
    });
}

/// Each printed event is formatted in 8 KiB.
#[test]
fn a_small_thread_whose_allocations_are_printed() {
    child::isolated("a_small_thread_whose_allocations_are_printed", || {
        rtprof::set_mem_profile_rate(1);
        let (begins, begun) = std::sync::mpsc::channel::<()>();
        let size = if cfg!(debug_assertions) { 32 << 10 } else { 16 << 10 };
        let work = move || {
            // The work begins after the thread's own start, which needs room too.
            begun.recv().ok();
            in_a_thread();
        };
        let thread = std::thread::Builder::new().stack_size(size).spawn(work).expect("a thread can be made");
        rtprof::set_alloc_free_trace(true);
        drop(begins);
        thread.join().expect("it ends well");
        rtprof::set_alloc_free_trace(false);
        assert_eq!(recorded(&profile(), &["in_a_thread"]), ROUNDS);
    });
}

/// Even if a guard page is no mapping (`MADV_GUARD_INSTALL`, glibc since 2.42), the memory below it does not belong to
/// the thread.
#[test]
fn a_guard_page_inside_a_mapping() {
    const TEST: &str = "a_guard_page_inside_a_mapping";
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    /// A run with `left` bytes of stack left.
    struct Run {
        low: usize,
        left: usize,
    }
    extern "C" fn near_the_guard(run: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the argument is the address of a local of the thread that joins this one.
        let run = unsafe { &*run.cast::<Run>() };
        deeper(run.low + run.left, &some_objects);
        null_mut()
    }
    child::isolated(TEST, || {
        rtprof::set_mem_profile_rate(1);
        for left in [LEAST, 4 << 10, ENOUGH, 10 << 10, 16 << 10, 24 << 10, 40 << 10] {
            let before = {
                let profile = profile();
                (recorded(&profile, &["near_the_guard"]), given_up(&profile))
            };
            // The lower half could be the stack of another thread.
            let stack = Stack::new(512 << 10, null_mut());
            // SAFETY: the guard lies inside the mapping; the thread on the upper half ends before the unmapping.
            unsafe {
                let guard = stack.start.byte_add(stack.size / 2);
                if libc::madvise(guard, PAGE, MADV_GUARD_INSTALL) != 0 {
                    return test_support::skipped(
                        TEST,
                        "the kernel has no such guard pages (before Linux 6.13)",
                    );
                }
                let low = guard.byte_add(PAGE);
                let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
                assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
                assert_eq!(libc::pthread_attr_setstack(&raw mut attributes, low, stack.size / 2), 0);
                let mut run = Run { low: low.addr(), left };
                let mut thread = std::mem::zeroed();
                let run = (&raw mut run).cast();
                assert_eq!(
                    libc::pthread_create(&raw mut thread, &raw const attributes, near_the_guard, run),
                    0
                );
                assert_eq!(libc::pthread_join(thread, null_mut()), 0);
            }
            let profile = profile();
            let shown = recorded(&profile, &["near_the_guard"]) - before.0;
            let lost = given_up(&profile) - before.1;
            assert_eq!(shown + lost, ROUNDS, "with {left} bytes left: {}", profile.comments());
            assert!(left < ENOUGH || lost == 0, "{lost} of {ROUNDS} lost with {left} bytes left");
        }
    });
}

/// A mapping with a page below it that faults when accessed.
struct Stack {
    start: *mut libc::c_void,
    size: usize,
}

const PAGE: usize = 4096;

impl Stack {
    /// Maps a stack, at `at` if that is not null.
    fn new(size: usize, at: *mut libc::c_void) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED_NOREPLACE };
        // SAFETY: makes a new mapping that replaces none.
        let start = unsafe { libc::mmap(at, size + PAGE, libc::PROT_NONE, flags | fixed, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range lies within the mapping.
        let n = unsafe { libc::mprotect(start.byte_add(PAGE), size, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(n, 0);
        Self { start, size }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and the mapping is not used any more.
        unsafe { libc::munmap(self.start, self.size + PAGE) };
    }
}

#[cfg(target_env = "gnu")]
mod coroutine {
    use super::*;

    /// Runs `f` on `stack`.
    #[inline(never)]
    pub(super) fn run_on(stack: &Stack, f: extern "C" fn()) {
        // SAFETY: the contexts live until the coroutine has switched back to this context.
        unsafe {
            let mut here: libc::ucontext_t = std::mem::zeroed();
            let mut there: libc::ucontext_t = std::mem::zeroed();
            assert_eq!(libc::getcontext(&raw mut there), 0);
            there.uc_stack.ss_sp = stack.start.byte_add(PAGE);
            there.uc_stack.ss_size = stack.size;
            there.uc_link = &raw mut here;
            libc::makecontext(&raw mut there, f, 0);
            assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
        }
    }

    /// Runs `f` while no file can be opened, including those of /proc that list mappings.
    pub(super) fn without_files(f: impl FnOnce()) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the calls read and write the local.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            let none = libc::rlimit { rlim_cur: 0, ..limit };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
            f();
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
    }
}

#[cfg(target_env = "gnu")]
#[inline(never)]
extern "C" fn in_a_coroutine() {
    some_objects();
    black_box(());
}

#[cfg(target_env = "gnu")]
#[test]
fn a_coroutine_of_16_kib() {
    child::isolated("a_coroutine_of_16_kib", || {
        rtprof::set_mem_profile_rate(1);
        let stack = Stack::new(16 << 10, null_mut());
        for _ in 0..10 {
            coroutine::run_on(&stack, in_a_coroutine);
        }
        let profile = profile();
        assert_eq!(recorded(&profile, &["in_a_coroutine"]), 10 * ROUNDS, "{}", profile.comments());
    });
}

/// Samples on a further stack need no file, once the thread has had a sample on its own stack.
#[cfg(target_env = "gnu")]
#[test]
fn the_bounds_of_coroutines_are_not_looked_up() {
    child::isolated("the_bounds_of_coroutines_are_not_looked_up", || {
        rtprof::set_mem_profile_rate(1);
        drop(black_box(Box::new(1)));
        let stacks = [16 << 10, 64 << 10].map(|size| Stack::new(size, null_mut()));
        coroutine::without_files(|| {
            for stack in &stacks {
                coroutine::run_on(stack, in_a_coroutine);
            }
        });
        let profile = profile();
        assert_eq!(recorded(&profile, &["in_a_coroutine"]), 2 * ROUNDS, "{}", profile.comments());
    });
}

/// Without /proc, stacks are still walked.
#[cfg(target_env = "gnu")]
#[test]
fn a_thread_that_can_open_no_file() {
    child::isolated("a_thread_that_can_open_no_file", || {
        rtprof::set_mem_profile_rate(1);
        coroutine::without_files(|| std::thread::spawn(in_a_thread).join().expect("it ends well"));
        let profile = profile();
        assert_eq!(recorded(&profile, &["in_a_thread"]), ROUNDS, "{}", profile.comments());
    });
}

/// The known bounds of a stack must not be used for another stack at the same addresses.
#[cfg(target_env = "gnu")]
#[test]
fn a_smaller_stack_takes_the_place_of_a_larger_one() {
    child::isolated("a_smaller_stack_takes_the_place_of_a_larger_one", || {
        rtprof::set_mem_profile_rate(1);
        for _ in 0..20 {
            let large = Stack::new(256 << 10, null_mut());
            coroutine::run_on(&large, in_a_coroutine);
            let place = large.start;
            drop(large);
            // The small stack ends where the middle of the large one was, and above it nothing is mapped.
            let small = Stack::new(64 << 10, place);
            coroutine::run_on(&small, in_a_coroutine);
        }
        let profile = profile();
        assert_eq!(recorded(&profile, &["in_a_coroutine"]), 40 * ROUNDS, "{}", profile.comments());
    });
}

extern "C" fn in_a_handler(_: libc::c_int) {
    some_objects();
}

#[test]
fn an_alternate_signal_stack() {
    child::isolated("an_alternate_signal_stack", || {
        rtprof::set_mem_profile_rate(1);
        let stack = Stack::new(12 << 10, null_mut());
        let handler = in_a_handler as extern "C" fn(libc::c_int);
        // SAFETY: the stack lives until the test process ends, and the handler has the type that the signal needs.
        unsafe {
            let alternate =
                libc::stack_t { ss_sp: stack.start.byte_add(PAGE), ss_flags: 0, ss_size: stack.size };
            assert_eq!(libc::sigaltstack(&raw const alternate, null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
            for _ in 0..5 {
                assert_eq!(libc::raise(libc::SIGUSR1), 0);
            }
        }
        let profile = profile();
        let (shown, lost) = (recorded(&profile, &["in_a_handler"]), given_up(&profile));
        assert_eq!(shown + lost, 5 * ROUNDS, "{}", profile.comments());
        assert!(shown == 5 * ROUNDS || cfg!(debug_assertions), "{lost} of {}", 5 * ROUNDS);
    });
}
