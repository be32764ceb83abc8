//! Events of a garbage collector that the program embeds.
//!
//! One collection and one stop of the world are recorded at a time. A second one that begins during the first is not
//! recorded, only counted: trace formats cannot show two.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lane_writer::LaneWriter;
use crate::record::{RecordKind, StwReason};
use crate::session;
use crate::thread::{RECORDER, is_enabled, record_own};

/// A kind of activity of which one is recorded at a time.
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

    /// Begins the activity. `None` if it is not recorded.
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
            Some(Recorded { session: session::number(), number })
        });
        if recorded.flatten().is_none() {
            self.goes_on.store(false, Ordering::Release);
        }
        recorded.flatten()
    }

    fn end(&self, begun: Recorded, kind: RecordKind) {
        // Nothing is written if another trace has begun since.
        if begun.session == session::number() {
            write(kind, [begun.number]);
        }
        self.goes_on.store(false, Ordering::Release);
    }
}

/// An activity whose beginning is in a trace, and whose end is to be in the same trace.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    session: u32,
    number: u64,
}

/// Resets the numbers when a trace begins.
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

/// Guard of a collection, which ends when this is dropped. Go: from `gcStart` to the end of mark termination.
#[must_use = "it ends when this is dropped"]
#[derive(Debug)]
pub struct Collection(Option<Recorded>);

/// Begins a collection.
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

/// Guard of a stop of the world, which ends when this is dropped.
#[must_use = "the world goes on when this is dropped"]
#[derive(Debug)]
pub struct Stop {
    begun: Option<Recorded>,
    /// Only the goroutine that stopped the world can restart it.
    _of_this_thread: PhantomData<*const ()>,
}

/// Records that the program has stopped its world. Go: `stopTheWorld`.
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
    /// The trace in which this thread's sweep was recorded; 0 for none.
    static SWEEP: Cell<u32> = const { Cell::new(0) };
    /// The number of nested assists of this thread, and the trace in which the outermost was recorded; 0 for none.
    static ASSISTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Records the beginning of an activity that ends on this thread. Returns the trace in which it was recorded; 0 for
/// none.
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
        session::number()
    });
    recorded.unwrap_or(0)
}

/// Begins a sweep by the current thread. Must not be nested. Go: `traceGCSweepStart`.
pub fn begin_sweep() {
    SWEEP.with(|sweep| sweep.set(begin_here(RecordKind::SweepStart)));
}

/// Ends the sweep, which has swept `swept` bytes and freed `reclaimed` of them. Go: `traceGCSweepDone`.
pub fn end_sweep(swept: u64, reclaimed: u64) {
    let begun = SWEEP.with(Cell::take);
    if begun != 0 && begun == session::number() {
        write(RecordKind::SweepDone, [swept, reclaimed]);
    }
}

/// Guard of an assist: the current goroutine helps the collector until this is dropped. Go: mark assist.
#[must_use = "the assist ends when this is dropped"]
#[derive(Debug)]
pub struct Assist {
    _of_this_thread: PhantomData<*const ()>,
}

/// Begins an assist of the collector by the current goroutine. Nested assists are recorded as one event, the outermost.
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
        if count == 1 && begun != 0 && begun == session::number() {
            write(RecordKind::AssistDone, []);
        }
    }
}
