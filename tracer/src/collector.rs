//! What a program that embeds a garbage collector tells of it.
//!
//! There is one collection at a time, and one stop of the world. Another that begins meanwhile is not recorded, and is
//! counted: a trace knows no two.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::record::{Kind, StwReason};
use crate::thread::{RECORDER, is_enabled, own_turn};
use crate::turn::Turn;

/// Something that there is one of at a time.
struct Only {
    goes_on: AtomicBool,
    /// How many were recorded in this trace.
    number: AtomicU64,
}

static COLLECTION: Only = Only::new();
static STOP: Only = Only::new();

impl Only {
    const fn new() -> Self {
        Self { goes_on: AtomicBool::new(false), number: AtomicU64::new(0) }
    }

    /// Whether it began, and was recorded.
    fn begin(&self, record: impl FnOnce(&mut Turn<'_>, u64)) -> bool {
        if !is_enabled() {
            return false;
        }
        if self.goes_on.swap(true, Ordering::Acquire) {
            RECORDER.losses.concurrent.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let recorded = own_turn(|turn, _| {
            if turn.count_if_lost() {
                return false;
            }
            record(turn, self.number.load(Ordering::Relaxed));
            self.number.fetch_add(1, Ordering::Relaxed);
            true
        });
        if recorded != Some(true) {
            self.goes_on.store(false, Ordering::Release);
        }
        recorded == Some(true)
    }

    fn end(&self, kind: Kind) {
        write(kind, []);
        self.goes_on.store(false, Ordering::Release);
    }
}

/// A trace begins.
pub(crate) fn begin() {
    COLLECTION.number.store(0, Ordering::Relaxed);
    STOP.number.store(0, Ordering::Relaxed);
}

fn write<const N: usize>(kind: Kind, arguments: [u64; N]) {
    own_turn(|turn, _| {
        if !turn.count_if_lost() {
            turn.write(kind, turn.now(), arguments);
        }
    });
}

/// A collection goes on, until this is dropped. Go: from `gcStart` to the end of mark termination.
#[must_use = "it ends when this is dropped"]
#[derive(Debug)]
pub struct Collection {
    is_recorded: bool,
}

/// A collection begins.
pub fn begin_collection() -> Collection {
    let is_recorded = COLLECTION.begin(|turn, number| {
        let stack = turn.stack();
        turn.write(Kind::GcStart, turn.now(), [number, stack.into()]);
    });
    Collection { is_recorded }
}

impl Drop for Collection {
    fn drop(&mut self) {
        if self.is_recorded {
            COLLECTION.end(Kind::GcDone);
        }
    }
}

/// The world is stopped, until this is dropped.
#[must_use = "the world goes on when this is dropped"]
#[derive(Debug)]
pub struct Stop {
    is_recorded: bool,
}

/// The program has stopped its world. Go: `stopTheWorld`.
pub fn begin_stop(reason: StwReason) -> Stop {
    let is_recorded = STOP.begin(|turn, number| {
        let stack = turn.stack();
        turn.write(Kind::StwStart, turn.now(), [number, reason as u64, stack.into()]);
    });
    Stop { is_recorded }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if self.is_recorded {
            STOP.end(Kind::StwDone);
        }
    }
}

/// The current thread sweeps from now on. Not to be nested. Go: `traceGCSweepStart`.
pub fn begin_sweep() {
    own_turn(|turn, _| {
        if !turn.count_if_lost() {
            let stack = turn.stack();
            turn.write(Kind::SweepStart, turn.now(), [stack.into()]);
        }
    });
}

/// It has swept so many bytes, and made so many of them free. Go: `traceGCSweepDone`.
pub fn end_sweep(swept: u64, reclaimed: u64) {
    if is_enabled() {
        write(Kind::SweepDone, [swept, reclaimed]);
    }
}

thread_local! {
    /// Assists that this thread is inside of.
    static ASSISTS: Cell<u32> = const { Cell::new(0) };
}

/// The current goroutine helps the collector, until this is dropped. Go: mark assist.
#[must_use = "the assist ends when this is dropped"]
#[derive(Debug)]
pub struct Assist {
    _of_this_thread: core::marker::PhantomData<*const ()>,
}

/// The current goroutine begins to help the collector. Of nested assists the outermost is one event.
pub fn begin_assist() -> Assist {
    let is_outermost = ASSISTS.with(|assists| assists.replace(assists.get() + 1)) == 0;
    if is_outermost && is_enabled() {
        own_turn(|turn, _| {
            if !turn.count_if_lost() {
                let stack = turn.stack();
                turn.write(Kind::AssistStart, turn.now(), [stack.into()]);
            }
        });
    }
    Assist { _of_this_thread: core::marker::PhantomData }
}

impl Drop for Assist {
    fn drop(&mut self) {
        let is_outermost = ASSISTS.with(|assists| assists.replace(assists.get() - 1)) == 1;
        if is_outermost && is_enabled() {
            write(Kind::AssistDone, []);
        }
    }
}
