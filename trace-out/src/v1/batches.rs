//! The events of each P, in order, batch by batch.

use rtprof_runtime::goroutine::wait_reason::WaitClass;

use crate::numbers::put_bytes;
use crate::schedule::{Changed, Event, OUTSIDE, Proc, Procs, Reason, Wire};
#[cfg(any(test, feature = "self-check"))]
use crate::self_check::EventCheck;

use super::event::{EventType, NO_PROC};
use super::wire::{Records, put_batch, put_event};

/// A batch is closed before it grows beyond this size, as in Go: readers decode one batch at a time.
const BATCH: usize = 64 << 10;

/// The most bytes of one event, its message included.
const EVENT: usize = 2 << 10;

/// The events that are not in the file yet.
pub(super) struct Batches {
    /// Number of bits by which ticks are shifted to the right.
    shift: u32,
    /// Closed batches.
    closed: Vec<u8>,
    /// The batch of CPU samples, which are kept in separate batches.
    samples: Vec<u8>,
    pub(super) events: u64,
    #[cfg(any(test, feature = "self-check"))]
    check: Option<EventCheck>,
}

/// The current batch of a P; empty if there is none.
#[derive(Default)]
pub(super) struct Batch(Vec<u8>);

impl Batches {
    pub(super) fn new(shift: u32) -> Self {
        Self {
            shift,
            closed: Vec::new(),
            samples: Vec::new(),
            events: 0,
            #[cfg(any(test, feature = "self-check"))]
            check: crate::self_check::start(),
        }
    }

    /// Writes the number of Ps, on the P for "none".
    pub(super) fn put_gomaxprocs(&mut self, outside: &mut Proc<Batch>, tick: u64, procs: u32) {
        self.append(OUTSIDE, outside, tick, EventType::Gomaxprocs, [procs.into(), 0], None);
    }

    #[inline]
    pub(super) fn append<const N: usize>(
        &mut self,
        index: u32,
        proc: &mut Proc<Batch>,
        tick: u64,
        event: EventType,
        args: [u64; N],
        message: Option<&[u8]>,
    ) -> u64 {
        let pid = pid(index);
        let batch = &mut proc.lane.0;
        if batch.len() > BATCH - EVENT {
            self.closed.extend_from_slice(batch);
            batch.clear();
        }
        // Go's readers delay an event that is not younger than the previous one by a nanosecond; a burst would drift.
        let tick = tick.max(proc.tick + 1);
        if batch.is_empty() {
            put_batch(batch, pid, tick);
            proc.tick = tick;
        }
        put_event(batch, event, tick - proc.tick, args);
        if let Some(message) = message {
            put_bytes(batch, message);
        }
        proc.tick = tick;
        self.events += 1;
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(Some((pid, tick, event.number(), &args)));
        }
        tick
    }
}

impl Wire for Batches {
    type Lane = Batch;
    type Definitions = Records;

    /// A trace begins with such a burst.
    const STAND_IN_AHEAD: u64 = 100_000;
    const HAS_TEXTS: bool = false;
    const HAS_LONG_STOPS: bool = true;
    const STOPS_END_ALONE: bool = false;
    const REGIONS_END_WITH_GOROUTINE: bool = true;
    const HAS_WAKER_ALWAYS: bool = false;

    fn in_file(&self, tick: u64) -> u64 {
        tick >> self.shift
    }

    /// Readers would not know the goroutine's name.
    fn may_state(&self) -> bool {
        false
    }

    #[inline]
    fn put(&mut self, index: u32, proc: &mut Proc<Batch>, tick: u64, event: Event<'_>) -> u64 {
        use EventType as E;
        let mut put1 = |event, arg| self.append(index, proc, tick, event, [arg], None);
        match event {
            Event::ProcStart { thread } => put1(E::ProcStart, thread.number),
            Event::Yield { stack, .. } => put1(E::GoSched, stack),
            Event::Block { reason, stack, .. } => put1(block_event(reason), stack),
            Event::HeapAlloc { bytes } => put1(E::HeapAlloc, bytes),
            Event::HeapGoal { bytes } => put1(E::HeapGoal, bytes),
            // A system call is always shown as blocking: the thread takes its P along.
            Event::SyscallBegin { stack } => {
                self.append(index, proc, tick, E::GoSysCall, [stack], None);
                self.append(index, proc, tick, E::GoSysBlock, [], None)
            }
            Event::ProcStop => self.append(index, proc, tick, E::ProcStop, [], None),
            Event::End => self.append(index, proc, tick, E::GoEnd, [], None),
            Event::Create { goroutine, start, stack, .. } => {
                self.append(index, proc, tick, E::GoCreate, [goroutine, start.stack, stack], None)
            }
            Event::Start { changed: Changed { goroutine, sequence, is_local, .. }, label } => {
                // A transition on the same P as the last one needs no sequence number.
                if label != 0 {
                    self.append(index, proc, tick, E::GoStartLabel, [goroutine, sequence, label], None)
                } else if is_local {
                    self.append(index, proc, tick, E::GoStartLocal, [goroutine], None)
                } else {
                    self.append(index, proc, tick, E::GoStart, [goroutine, sequence], None)
                }
            }
            Event::Unblock { changed: Changed { goroutine, sequence, is_local, .. }, stack } => {
                match is_local {
                    true => self.append(index, proc, tick, E::GoUnblockLocal, [goroutine, stack], None),
                    false => self.append(index, proc, tick, E::GoUnblock, [goroutine, sequence, stack], None),
                }
            }
            Event::SyscallEnd { changed: Changed { goroutine, sequence, .. } } => {
                self.append(index, proc, tick, E::GoSysExit, [goroutine, sequence, 0], None)
            }
            Event::Collector(event) => self.put_collector(index, proc, tick, event),
            Event::TaskBegin { task, parent, name, stack } => {
                self.append(index, proc, tick, E::UserTaskCreate, [task, parent, name, stack], None)
            }
            Event::TaskEnd { task, stack } => {
                self.append(index, proc, tick, E::UserTaskEnd, [task, stack], None)
            }
            Event::RegionBegin { task, name, stack } => {
                self.append(index, proc, tick, E::UserRegion, [task, 0, name, stack], None)
            }
            Event::RegionEnd { task, name } => {
                self.append(index, proc, tick, E::UserRegion, [task, 1, name, 0], None)
            }
            Event::Log { task, category, stack, message, .. } => {
                self.append(index, proc, tick, E::UserLog, [task, category, stack], Some(message))
            }
            // The whole file is one part, and goroutines are created in it.
            Event::Status { .. } => tick,
        }
    }

    fn give_back(&mut self, _index: u32, _proc: &mut Proc<Batch>) {}

    /// A sample carries its time, P and goroutine.
    fn put_sample(&mut self, index: u32, (tick, _): (u64, u64), goroutine: u64, stack: u64) {
        if self.samples.len() > BATCH - EVENT {
            self.closed.append(&mut self.samples);
        }
        if self.samples.is_empty() {
            // P 0 as in Go's own traces. Readers make no P of it.
            put_batch(&mut self.samples, 0, tick);
        }
        let args = [tick, pid(index), goroutine, stack];
        put_event(&mut self.samples, EventType::CpuSample, 0, args);
        self.events += 1;
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(Some((0, tick, EventType::CpuSample.number(), &args)));
        }
    }

    fn finish(&mut self) {
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(None);
        }
    }
}

/// Moves all written bytes to the end of `out`. The next events begin new batches.
pub(super) fn close(procs: &mut Procs<Batches>, out: &mut Vec<u8>) {
    out.append(&mut procs.wire.closed);
    out.append(&mut procs.wire.samples);
    procs.wire.closed.shrink_to(BATCH);
    procs.each_lane(|_, _, proc, is_free| {
        let batch = &mut proc.lane.0;
        out.append(batch);
        if is_free {
            *batch = Vec::new();
        }
    });
}

fn pid(index: u32) -> u64 {
    if index == OUTSIDE { NO_PROC } else { index.into() }
}

/// Returns the event of a wait, which selects the profile of `go tool trace` that shows the wait. Go's runtime has
/// separate events for its own kinds of waits; a thread's other waits are those for another thread.
fn block_event(reason: Reason) -> EventType {
    let (Reason::Wait(reason) | Reason::Await(reason, _)) = reason else { return EventType::GoBlock };
    match reason.class() {
        WaitClass::Condition => EventType::GoBlockCond,
        WaitClass::Send => EventType::GoBlockSend,
        WaitClass::Receive => EventType::GoBlockRecv,
        WaitClass::Select => EventType::GoBlockSelect,
        WaitClass::Network => EventType::GoBlockNet,
        WaitClass::Sleep => EventType::GoSleep,
        WaitClass::Sync | WaitClass::Join | WaitClass::Await => EventType::GoBlockSync,
    }
}
