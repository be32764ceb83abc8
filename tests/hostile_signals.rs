//! A signal handler that allocates, wherever it interrupts its thread: in a hook too.
//!
//! POSIX forbids this; but programs do it, and with a suitable allocator they survive. Then nothing is recorded twice,
//! and lost samples are counted.
#![cfg(all(feature = "pprof", target_os = "linux"))]

use std::alloc::{GlobalAlloc, Layout, alloc};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use test_support::profile::{ALLOC_OBJECTS, Profile};
use test_support::{PATIENCE, child};

/// An allocator that grants memory and frees none: safe to call in a signal handler.
struct Bump;

const SIZE: usize = 8 << 30;

static MEMORY: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns the mapping; the first call comes long before the first signal.
fn memory() -> *mut u8 {
    let known = MEMORY.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: makes a new mapping, of which only written pages take memory.
    let memory = unsafe { libc::mmap(null_mut(), SIZE, access, flags | libc::MAP_NORESERVE, -1, 0) };
    assert!(memory != libc::MAP_FAILED);
    MEMORY.store(memory.cast(), Relaxed);
    memory.cast()
}

// SAFETY: no two allocations overlap, and all lie in the mapping, with the requested alignment.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let room = layout.size() + layout.align();
        let at = USED.fetch_add(room, Relaxed);
        if at + room > SIZE {
            return null_mut();
        }
        // SAFETY: the offset lies within the mapping.
        let start = unsafe { memory().add(at) };
        start.map_addr(|start| start.next_multiple_of(layout.align()))
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Bump> = rtprof::ProfAlloc::new(Bump);

/// The size of the counted objects; no other object has it.
const OBJECT: usize = 613;

static BY_HANDLER: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn one_object() {
    let layout = Layout::from_size_align(OBJECT, 1).expect("a small size");
    // SAFETY: the layout's size is not 0.
    assert!(!black_box(unsafe { alloc(layout) }).is_null());
}

extern "C" fn handler(_: libc::c_int) {
    one_object();
    BY_HANDLER.fetch_add(1, Relaxed);
}

#[test]
fn what_a_signal_handler_allocates_in_a_hook_is_counted() {
    child::isolated("what_a_signal_handler_allocates_in_a_hook_is_counted", || {
        const SIGNALS: usize = 5000;
        let handler = handler as extern "C" fn(libc::c_int);
        // SAFETY: the handler has this type.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        // SAFETY: no precondition.
        let this = unsafe { libc::pthread_self() };
        rtprof::set_mem_profile_rate(1);
        black_box(Profile::heap());
        let mut by_program = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while BY_HANDLER.load(Relaxed) < SIGNALS {
                    // SAFETY: the thread lives, because it waits for this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                }
            });
            let started = Instant::now();
            while BY_HANDLER.load(Relaxed) < SIGNALS {
                assert!(started.elapsed() < PATIENCE, "signals come");
                for _ in 0..10 {
                    one_object();
                    by_program += 1;
                }
            }
        });
        rtprof::set_mem_profile_rate(0);
        let profile = Profile::heap();
        let recorded = profile.totals_of_size(OBJECT)[ALLOC_OBJECTS];
        let lost = lost(&profile.comments());
        let made = by_program + BY_HANDLER.load(Relaxed) as i64;
        assert_eq!(recorded + lost, made, "{recorded} recorded and {lost} lost");
        assert!(lost > 0, "no signal came in a hook: {made} made");
    });
}

/// Returns how many allocations were lost in interrupted hooks, according to the profile.
fn lost(comments: &str) -> i64 {
    let line = comments.lines().find(|line| line.contains("a signal handler that had interrupted"));
    let number = line.and_then(|line| line.strip_prefix("rtprof: ")?.split(' ').next()?.parse().ok());
    number.unwrap_or_default()
}
