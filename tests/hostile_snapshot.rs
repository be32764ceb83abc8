//! Snapshots of all goroutines taken in the midst of other work: by the allocator under ours while it serves a sampled
//! allocation, or another snapshot; by a foreign lock while its waiter waits; by the writer of a trace.
#![cfg(feature = "pprof")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rtprof::pprof::lookup;
use rtprof::{goroutine_profile, num_goroutine, thread, trace};
use test_support::inner::INNER;
use test_support::{Background, child, until};

/// An allocator that takes a snapshot whenever it is called, except during its own snapshot.
struct Asks;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Asks> = rtprof::ProfAlloc::new(Asks);

static ASKS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicUsize = AtomicUsize::new(0);
static EMPTY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Takes a snapshot, and counts the snapshots that are empty.
fn ask() {
    if !ASKS.load(Relaxed) || ASKING.replace(true) {
        return;
    }
    let all = goroutine_profile();
    EMPTY.fetch_add(all.is_empty().into(), Relaxed);
    ASKED.fetch_add(1, Relaxed);
    drop(all);
    ASKING.set(false);
}

// SAFETY: every call is passed on to the inner allocator unchanged.
unsafe impl GlobalAlloc for Asks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ask();
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { INNER.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ask();
        // SAFETY: the caller passes a pointer from the inner allocator with its layout.
        unsafe { INNER.dealloc(pointer, layout) }
    }
}

/// Returns how often each of `NAMES` is listed.
fn times() -> [usize; 3] {
    let all = goroutine_profile();
    NAMES.map(|name| all.iter().filter(|goroutine| goroutine.name == name).count())
}

const NAMES: [&str; 3] = ["allocates 1", "allocates 2", "waits"];

/// Allocates large objects, which the allocator under ours serves within the hook, and small ones.
fn allocate() {
    for size in [100 << 10, 100] {
        black_box(vec![1_u8; size]);
    }
}

#[test]
fn within_sampled_allocations() {
    child::isolated("within_sampled_allocations", || {
        rtprof::set_mem_profile_rate(1);
        let background = &Background::default();
        thread::scope(|scope| {
            let _ends = background.ends_here();
            let start = |name: &str, work: fn()| {
                let thread = thread::Builder::new().name(name.into());
                thread.spawn_scoped(scope, move || background.repeat(work)).expect("a thread");
            };
            start(NAMES[0], allocate);
            start(NAMES[1], allocate);
            start(NAMES[2], || thread::sleep(std::time::Duration::from_micros(20)));
            until("all have begun", || times() == [1; 3]);
            ASKS.store(true, Relaxed);
            // Not on this thread, whose own snapshots would contain these snapshots.
            ASKING.set(true);
            until("it has been asked often", || {
                assert_eq!(times(), [1; 3], "{NAMES:?} are there once each");
                ASKED.load(Relaxed) >= 300
            });
            ASKS.store(false, Relaxed);
        });
        assert_eq!(EMPTY.load(Relaxed), 0);
    });
}

/// A snapshot within a snapshot would wait for itself: it is refused, and the profile says so.
#[test]
fn within_a_snapshot() {
    child::isolated("within_a_snapshot", || {
        rtprof::set_mem_profile_rate(0);
        ASKS.store(true, Relaxed);
        let all = goroutine_profile();
        ASKS.store(false, Relaxed);
        assert!(EMPTY.load(Relaxed) > 0, "the allocator was called within a snapshot");
        assert_eq!(all.len(), num_goroutine(), "the outer one is whole");
        let mut text = Vec::new();
        lookup("goroutine").expect("it is there").write_to(&mut text, 1).expect("to memory");
        let text = String::from_utf8(text).expect("text");
        let complaint =
            format!("rtprof: {} snapshots of goroutines were asked for within another", EMPTY.load(Relaxed));
        assert!(text.contains(&complaint), "{text}");
    });
}

/// A lock that takes a snapshot before its waiter waits, and before its holder unlocks.
struct AskingLock(parking_lot::RawMutex);

// SAFETY: the inner lock provides the exclusion.
unsafe impl lock_api::RawMutex for AskingLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(<parking_lot::RawMutex as lock_api::RawMutex>::INIT);
    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    fn lock(&self) {
        ask();
        lock_api::RawMutex::lock(&self.0);
        ask();
    }

    fn try_lock(&self) -> bool {
        lock_api::RawMutex::try_lock(&self.0)
    }

    unsafe fn unlock(&self) {
        ask();
        // SAFETY: the caller holds the lock.
        unsafe { lock_api::RawMutex::unlock(&self.0) };
    }
}

static TOTAL: lock_api::Mutex<rtprof::sync::RawMutex<AskingLock>, usize> = lock_api::Mutex::new(0);

#[test]
fn within_a_wait_for_a_foreign_lock() {
    child::isolated("within_a_wait_for_a_foreign_lock", || {
        rtprof::set_mem_profile_rate(0);
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(1);
        ASKS.store(true, Relaxed);
        let background = &Background::default();
        thread::scope(|scope| {
            let _ends = background.ends_here();
            for name in NAMES {
                let body = move || {
                    background.repeat(|| {
                        // Only the lock takes snapshots, not the allocator.
                        let mut total = TOTAL.lock();
                        ASKING.set(true);
                        *total += 1;
                        std::thread::yield_now();
                        ASKING.set(false);
                    });
                };
                thread::Builder::new().name(name.into()).spawn_scoped(scope, body).expect("a thread");
            }
            ASKING.set(true);
            until("it has been asked often, also by threads that wait", || {
                ASKED.load(Relaxed) >= 1000 && !rtprof::block_profile().is_empty()
            });
        });
    });
}

/// A writer that takes a snapshot at each write.
struct AskingWriter(Vec<u8>);

impl Write for AskingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        assert!(!goroutine_profile().is_empty());
        ASKED.fetch_add(1, Relaxed);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn within_a_writer() {
    child::isolated("within_a_writer", || {
        trace::start(AskingWriter(Vec::new())).expect("no other one");
        for _ in 0..100 {
            assert!(!goroutine_profile().is_empty());
            thread::yield_now();
        }
        trace::stop().expect("nothing stops it");
        assert!(ASKED.swap(0, Relaxed) > 0);
        for debug in 0..3 {
            let goroutines = lookup("goroutine").expect("it is there");
            goroutines.write_to(AskingWriter(Vec::new()), debug).expect("to memory");
        }
        assert!(ASKED.load(Relaxed) >= 3);
    });
}
