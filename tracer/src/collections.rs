//! What a program that embeds a garbage collector tells of it.
//!
//! There is one collection at a time, and one stop of the world. Another that begins meanwhile is not recorded, and is
//! counted: a trace knows no two.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::drain::session;
use crate::lane_writer::LaneWriter;
use crate::record::{RecordKind, StwReason};
use crate::thread::{RECORDER, is_enabled, record_own};

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

    /// Begins it. `None` if nothing is recorded of it.
    fn begin(&self, record: impl FnOnce(&mut LaneWriter<'_>, u64)) -> Option<Recorded> {
        if !is_enabled() {
            return None;
        }
        if self.goes_on.swap(true, Ordering::Acquire) {
            RECORDER.losses.concurrent.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let recorded = record_own(|writer, _| {
            if writer.count_if_lost() {
                return None;
            }
            let number = self.number.load(Ordering::Relaxed);
            record(writer, number);
            self.number.store(number + 1, Ordering::Relaxed);
            Some(Recorded { session: session(), number })
        });
        if recorded.flatten().is_none() {
            self.goes_on.store(false, Ordering::Release);
        }
        recorded.flatten()
    }

    fn end(&self, begun: Recorded, kind: RecordKind) {
        // Not in a trace that has begun since.
        if begun.session == session() {
            write(kind, [begun.number]);
        }
        self.goes_on.store(false, Ordering::Release);
    }
}

/// What is in a trace, as its own end is to be.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    session: u32,
    number: u64,
}

/// A trace begins.
pub(crate) fn begin() {
    COLLECTION.number.store(0, Ordering::Relaxed);
    STOP.number.store(0, Ordering::Relaxed);
}

fn write<const N: usize>(kind: RecordKind, arguments: [u64; N]) {
    if !is_enabled() {
        return;
    }
    record_own(|writer, _| {
        if !writer.count_if_lost() {
            writer.write(kind, writer.now(), arguments);
        }
    });
}

/// A collection goes on, until this is dropped. Go: from `gcStart` to the end of mark termination.
#[must_use = "it ends when this is dropped"]
#[derive(Debug)]
pub struct Collection(Option<Recorded>);

/// A collection begins.
pub fn begin_collection() -> Collection {
    Collection(COLLECTION.begin(|writer, number| {
        let stack = writer.stack();
        writer.write(RecordKind::GcStart, writer.now(), [number, stack.into()]);
    }))
}

impl Drop for Collection {
    fn drop(&mut self) {
        if let Some(begun) = self.0 {
            COLLECTION.end(begun, RecordKind::GcDone);
        }
    }
}

/// The world is stopped, until this is dropped.
#[must_use = "the world goes on when this is dropped"]
#[derive(Debug)]
pub struct Stop {
    begun: Option<Recorded>,
    /// Only the goroutine that has stopped the world can let it go on.
    _of_this_thread: PhantomData<*const ()>,
}

/// The program has stopped its world. Go: `stopTheWorld`.
pub fn begin_stop(reason: StwReason) -> Stop {
    let begun = STOP.begin(|writer, number| {
        let stack = writer.stack();
        writer.write(RecordKind::StwStart, writer.now(), [number, reason as u64, stack.into()]);
    });
    Stop { begun, _of_this_thread: PhantomData }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            STOP.end(begun, RecordKind::StwDone);
        }
    }
}

thread_local! {
    /// The trace that the sweep of this thread is in; 0 for none.
    static SWEEP: Cell<u32> = const { Cell::new(0) };
    /// Assists that this thread is inside of, and the trace that the outermost is in; 0 for none.
    static ASSISTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Records the beginning of something that ends on this thread. Returns the trace that it is in; 0 for none.
fn begin_here(kind: RecordKind) -> u32 {
    if !is_enabled() {
        return 0;
    }
    let recorded = record_own(|writer, _| {
        if writer.count_if_lost() {
            return 0;
        }
        let stack = writer.stack();
        writer.write(kind, writer.now(), [stack.into()]);
        session()
    });
    recorded.unwrap_or(0)
}

/// The current thread sweeps from now on. Not to be nested. Go: `traceGCSweepStart`.
pub fn begin_sweep() {
    SWEEP.with(|sweep| sweep.set(begin_here(RecordKind::SweepStart)));
}

/// It has swept so many bytes, and made so many of them free. Go: `traceGCSweepDone`.
pub fn end_sweep(swept: u64, reclaimed: u64) {
    let begun = SWEEP.with(Cell::take);
    if begun != 0 && begun == session() {
        write(RecordKind::SweepDone, [swept, reclaimed]);
    }
}

/// The current goroutine helps the collector, until this is dropped. Go: mark assist.
#[must_use = "the assist ends when this is dropped"]
#[derive(Debug)]
pub struct Assist {
    _of_this_thread: PhantomData<*const ()>,
}

/// The current goroutine begins to help the collector. Of nested assists the outermost is one event.
pub fn begin_assist() -> Assist {
    let (count, mut begun) = ASSISTS.with(Cell::get);
    if count == 0 {
        begun = begin_here(RecordKind::AssistStart);
    }
    ASSISTS.with(|assists| assists.set((count + 1, begun)));
    Assist { _of_this_thread: PhantomData }
}

impl Drop for Assist {
    fn drop(&mut self) {
        let (count, begun) = ASSISTS.with(Cell::get);
        ASSISTS.with(|assists| assists.set((count - 1, begun)));
        if count == 1 && begun != 0 && begun == session() {
            write(RecordKind::AssistDone, []);
        }
    }
}
