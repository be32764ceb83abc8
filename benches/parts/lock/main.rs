//! The part for uncontended locks: the cost of a lock with its unlock.
//!
//! Requests: `rates BLOCK MUTEX`, `turn KIND WHOSE COPY COUNT` (answers ns for a lock with its unlock; KIND is `mutex`,
//! `read` or `write`).

use std::arch::asm;
use std::hint::black_box;

use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::serve::serve;

fn main() {
    serve(|request| match request.word() {
        "rates" => {
            rtprof::set_block_profile_rate(request.number() as u64);
            rtprof::set_mutex_profile_fraction(request.number() as i64);
            vec![]
        }
        "turn" => {
            let timed = timed_of(request.word(), request.word());
            vec![timed(request.number(), request.number())]
        }
        other => panic!("unknown request {other}"),
    });
}

/// A lock whose turn is lock, touch and unlock.
trait Lock {
    fn new() -> Self;
    fn turn(&self);
}

struct MutexOf<R>(Mutex<R, u64>);

impl<R: RawMutex> Lock for MutexOf<R> {
    fn new() -> Self {
        Self(Mutex::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        *self.0.lock() += 1;
    }
}

struct ReadOf<R>(RwLock<R, u64>);

impl<R: RawRwLock> Lock for ReadOf<R> {
    fn new() -> Self {
        Self(RwLock::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        black_box(*self.0.read());
    }
}

struct WriteOf<R>(RwLock<R, u64>);

impl<R: RawRwLock> Lock for WriteOf<R> {
    fn new() -> Self {
        Self(RwLock::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        *self.0.write() += 1;
    }
}

struct StdMutex(std::sync::Mutex<u64>);

impl Lock for StdMutex {
    fn new() -> Self {
        Self(std::sync::Mutex::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        *self.0.lock().expect("nobody panics") += 1;
    }
}

struct StdRead(std::sync::RwLock<u64>);

impl Lock for StdRead {
    fn new() -> Self {
        Self(std::sync::RwLock::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        black_box(*self.0.read().expect("nobody panics"));
    }
}

struct StdWrite(std::sync::RwLock<u64>);

impl Lock for StdWrite {
    fn new() -> Self {
        Self(std::sync::RwLock::new(0))
    }

    #[inline(always)]
    fn turn(&self) {
        *self.0.write().expect("nobody panics") += 1;
    }
}

type OurRawMutex = rtprof::sync::QueueMutex;
type OurRawRwLock = rtprof::sync::QueueRwLock;
type AdaptedMutex = rtprof::sync::RawMutex<parking_lot::RawMutex>;
type AdaptedRwLock = rtprof::sync::RawRwLock<parking_lot::RawRwLock>;

type Timed = fn(copy: usize, count: usize) -> f64;

fn timed_of(kind: &str, whose: &str) -> Timed {
    match (kind, whose) {
        ("mutex", "parking_lot") => timed::<MutexOf<parking_lot::RawMutex>>,
        ("mutex", "std") => timed::<StdMutex>,
        ("mutex", "rtprof") => timed::<MutexOf<OurRawMutex>>,
        ("mutex", "adapter") => timed::<MutexOf<AdaptedMutex>>,
        ("read", "parking_lot") => timed::<ReadOf<parking_lot::RawRwLock>>,
        ("read", "std") => timed::<StdRead>,
        ("read", "rtprof") => timed::<ReadOf<OurRawRwLock>>,
        ("read", "adapter") => timed::<ReadOf<AdaptedRwLock>>,
        ("write", "parking_lot") => timed::<WriteOf<parking_lot::RawRwLock>>,
        ("write", "std") => timed::<StdWrite>,
        ("write", "rtprof") => timed::<WriteOf<OurRawRwLock>>,
        ("write", "adapter") => timed::<WriteOf<AdaptedRwLock>>,
        _ => panic!("unknown lock {kind} {whose}"),
    }
}

/// A lock at the start of a separate cache line, so that no lock straddles two lines.
#[repr(align(128))]
struct Line<L>(L);

/// Returns the nanoseconds for one turn, in the loop's copy of this number.
fn timed<L: Lock>(copy: usize, count: usize) -> f64 {
    let lock = Line(L::new());
    let turns = copies::<L>()[copy];
    turns(&lock.0, count / 8);
    let watch = Stopwatch::start();
    turns(black_box(&lock.0), count);
    watch.nanos_each(count)
}

/// Copies of the loop: four places within a cache line, four copies of each in other parts of memory.
const COPIES: usize = 16;

fn copies<L: Lock>() -> [fn(&L, usize); COPIES] {
    [
        turns::<L, 0>,
        turns::<L, 1>,
        turns::<L, 2>,
        turns::<L, 3>,
        turns::<L, 4>,
        turns::<L, 5>,
        turns::<L, 6>,
        turns::<L, 7>,
        turns::<L, 8>,
        turns::<L, 9>,
        turns::<L, 10>,
        turns::<L, 11>,
        turns::<L, 12>,
        turns::<L, 13>,
        turns::<L, 14>,
        turns::<L, 15>,
    ]
}

/// The measured loop. The place of its nine instructions in memory is visible in a time this short, and the linker
/// could favour one lock over the other by chance. So every lock has the loop at the same places.
#[inline(never)]
fn turns<L: Lock, const COPY: usize>(lock: &L, count: usize) {
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
        lock.turn();
    }
}
