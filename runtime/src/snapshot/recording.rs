//! The memory of a snapshot: one record for each goroutine, written by the thread that has claimed the goroutine.
//!
//! The records are in a separate mapping that is kept for the next snapshot, because they are written by goroutines
//! that are about to run, which may allocate nothing.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use crate::goroutine::Goroutine;
use crate::goroutine::name::MAX_NAME;
use crate::goroutine::start::Start;
use crate::goroutine::state::State;
use crate::labels::{self, LabelSetId};
use crate::memory::mapping::{self, PAGE};
use crate::modules::CaptureSpan;
use crate::stack::MAX_STACK;
use crate::task::{MAX_NESTED, Task};
use crate::thread::kernel_thread;
use crate::thread::thread_create::ThreadBucket;

/// The ids of the tasks that a thread polls, innermost first, then zeros.
pub(crate) type Polled = [u64; MAX_NESTED];

/// Returns the ids of the tasks from `innermost` outwards.
pub(crate) fn polled(innermost: Option<&'static Task>) -> Polled {
    let mut ids = [0; MAX_NESTED];
    let mut task = innermost;
    for id in &mut ids {
        let Some(known) = task else { break };
        *id = known.id();
        task = known.outer();
    }
    ids
}

/// A goroutine as it was when it was recorded.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) thread_id: u32,
    pub(super) state: State,
    /// The tick at which its last wait began.
    pub(super) since: u64,
    pub(super) labels: LabelSetId,
    pub(super) start: Option<Start>,
    pub(super) created_by: Option<&'static ThreadBucket>,
    pub(super) creator: u64,
    /// The tasks that its thread polls.
    pub(super) polled: Polled,
    pub(super) span: CaptureSpan,
    name: [u8; MAX_NAME],
    name_len: usize,
    depth: usize,
}

/// What a goroutine was doing when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It waited in our hooks: its state contains the reason.
    Waiting,
    /// It waited in the kernel for something else.
    InKernel,
    /// It did not wait. If its state says waiting, it is about to wait, or was woken. If its state says syscall, it is
    /// about to enter the call or has returned, or it is only known from a CPU sample.
    Running,
}

impl Header {
    /// Makes the header of a goroutine whose id is `id`.
    fn of(goroutine: &Goroutine, id: u64, seen: Seen) -> Self {
        let state = match (goroutine.state().state(), seen) {
            (State::Waiting(_) | State::Syscall, Seen::Running) => State::Running,
            (State::Waiting(_) | State::Running, Seen::InKernel) => State::Syscall,
            (state, _) => state,
        };
        let mut name = [0; MAX_NAME];
        let name_len = goroutine.with_name(|text| {
            name[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        });
        Self {
            id,
            thread_id: goroutine.thread_id(),
            state,
            since: goroutine.since(),
            labels: goroutine.labels(),
            start: goroutine.start(),
            created_by: goroutine.created_by(),
            creator: goroutine.creator(),
            polled: polled(goroutine.polls()),
            span: CaptureSpan::now(),
            name,
            name_len,
            depth: 0,
        }
    }

    /// Makes the header of the current thread, which has no goroutine.
    fn of_stranger(id: u64, seen: Seen) -> Self {
        Self {
            id,
            thread_id: kernel_thread::thread_id(),
            state: if seen == Seen::InKernel { State::Syscall } else { State::Running },
            since: 0,
            labels: labels::current_id(),
            start: None,
            created_by: None,
            creator: 0,
            polled: [0; MAX_NESTED],
            span: CaptureSpan::now(),
            name: [0; MAX_NAME],
            name_len: 0,
            depth: 0,
        }
    }

    pub(super) fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..self.name_len]).unwrap_or_default()
    }
}

/// A record in the mapping.
struct Record {
    /// `None` until it is written; in zeroed memory it is never read.
    header: UnsafeCell<Option<Header>>,
    frames: UnsafeCell<[usize; MAX_STACK]>,
    /// 1 when header and frames are written.
    is_written: AtomicUsize,
}

/// The records of the current snapshot.
pub(super) struct Recording {
    records: AtomicPtr<Record>,
    capacity: AtomicUsize,
    next: AtomicUsize,
}

impl Recording {
    pub(super) const fn new() -> Self {
        Self {
            records: AtomicPtr::new(core::ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Empties the recording and makes room for `capacity` records. Returns `false` when there is no memory.
    ///
    /// # Safety
    /// The caller is the coordinator, and there is no current snapshot, so no other thread uses the recording.
    pub(super) unsafe fn prepare(&self, capacity: usize) -> bool {
        let (records, had) = (self.records.load(Ordering::Relaxed), self.capacity.load(Ordering::Relaxed));
        if had < capacity {
            let capacity = capacity.next_power_of_two();
            let Some(new) = mapping::map(bytes(capacity)) else { return false };
            self.records.store(new.as_ptr().cast(), Ordering::Relaxed);
            self.capacity.store(capacity, Ordering::Relaxed);
            if let Some(old) = NonNull::new(records) {
                // SAFETY: mapped here with that size; the caller guarantees that no other thread uses the recording.
                unsafe { mapping::unmap(old.cast(), bytes(had)) };
            }
        } else {
            let used = self.next.load(Ordering::Relaxed).min(had);
            for at in 0..used {
                // SAFETY: the index is within the mapping. Zeroed memory is a record that is not written.
                unsafe { (*records.add(at)).is_written.store(0, Ordering::Relaxed) };
            }
        }
        self.next.store(0, Ordering::Relaxed);
        true
    }

    /// Records a goroutine that the caller has claimed. `capture` writes its stack and returns the depth. Leaves the
    /// goroutine out if it has ended since, or if there is no room: [`overflow`](Self::overflow) counts the latter
    /// case.
    pub(super) fn add(
        &self,
        goroutine: &Goroutine,
        id: u64,
        seen: Seen,
        capture: impl FnOnce(&mut [usize; MAX_STACK]) -> usize,
    ) {
        let header = || Header::of(goroutine, id, seen);
        let is_right = || {
            // Either all that was read belongs to that goroutine, or the id has changed by now.
            fence(Ordering::Acquire);
            goroutine.id() == id
        };
        self.write(header, capture, is_right);
    }

    /// Records the current thread, which has no goroutine, or had none at the cut.
    pub(super) fn add_stranger(
        &self,
        id: u64,
        seen: Seen,
        capture: impl FnOnce(&mut [usize; MAX_STACK]) -> usize,
    ) {
        self.write(|| Header::of_stranger(id, seen), capture, || true);
    }

    fn write(
        &self,
        header: impl FnOnce() -> Header,
        capture: impl FnOnce(&mut [usize; MAX_STACK]) -> usize,
        is_right: impl FnOnce() -> bool,
    ) {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        if at >= self.capacity.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the index is within the mapping, which stays during a snapshot. Only this caller has received the
        // index.
        let record = unsafe { &*self.records.load(Ordering::Relaxed).add(at) };
        let mut header = header();
        // SAFETY: only this caller uses the record, and any words are valid frames.
        header.depth = capture(unsafe { &mut *record.frames.get() });
        if is_right() {
            // SAFETY: only this caller uses the record. The old header, if any, is plain data and needs no drop.
            unsafe { record.header.get().write(Some(header)) };
            record.is_written.store(1, Ordering::Release);
        }
    }

    /// Returns how many records found no room.
    pub(super) fn overflow(&self) -> usize {
        self.next.load(Ordering::Relaxed).saturating_sub(self.capacity.load(Ordering::Relaxed))
    }

    /// Calls `see` with each record and its stack.
    ///
    /// # Safety
    /// The caller is the coordinator, and the snapshot is closed, so no thread records any more.
    pub(super) unsafe fn for_each(&self, mut see: impl FnMut(&Header, &[usize])) {
        let records = self.records.load(Ordering::Relaxed);
        let used = self.next.load(Ordering::Relaxed).min(self.capacity.load(Ordering::Relaxed));
        for at in 0..used {
            // SAFETY: the index is within the mapping, and no other thread uses the record any more.
            let record = unsafe { &*records.add(at) };
            if record.is_written.load(Ordering::Acquire) == 0 {
                continue;
            }
            // SAFETY: the record is written, and no thread writes to it any more.
            if let (Some(header), frames) = unsafe { (&*record.header.get(), &*record.frames.get()) } {
                see(header, &frames[..header.depth]);
            }
        }
    }
}

fn bytes(capacity: usize) -> usize {
    (capacity * size_of::<Record>()).next_multiple_of(PAGE)
}
