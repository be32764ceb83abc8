//! The slot of a goroutine: its identity and its current wait.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::call::Call;
use super::live_goroutine::LiveGoroutine;
use super::origin::Origin;
use super::parked::Parked;
use super::protocol::Progress;
use crate::goroutine::name::Name;
use crate::goroutine::start::{Start, StartCell};
use crate::goroutine::state::{Now, State, StateWord};
use crate::goroutine::wait_reason::WaitReason;
use crate::labels::LabelSetId;
use crate::memory::atomic_ref::AtomicRef;
use crate::memory::slots::{Slot, SlotIndex};
use crate::primitive::{AtomicU32, AtomicU64};
use crate::task::Task;
use crate::thread::thread_create::ThreadBucket;

/// Tries of a reader while goroutines keep beginning and ending in the slot.
const TRIES: usize = 8;

/// One line of execution that the profiler follows: an operating system thread. Go: `g`.
///
/// A slot is never freed. When its goroutine has ended, it serves a later goroutine, which [`Goroutine::id`]
/// distinguishes.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Goroutine {
    /// 0 while the slot is free. Written last when a goroutine begins and first when it ends, so that a reader that
    /// sees the same id before and after the other fields has read a single goroutine.
    id: AtomicU64,
    now: Now,
    call: Call,
    thread_id: AtomicU32,
    process: AtomicU32,
    created_by: AtomicRef<ThreadBucket>,
    start: StartCell,
    creator: AtomicU64,
    labels: AtomicU32,
    progress: Progress,
    parked: Parked,
    /// The innermost task that its thread polls.
    polls: AtomicRef<Task>,
    thread_number: AtomicU64,
    name: Name,
    index: SlotIndex,
}

// SAFETY: the fields are atomics of numbers and pointers, for which zero is valid: it means a free slot.
unsafe impl Slot for Goroutine {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

/// The identity of a goroutine.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) id: u64,
    pub(super) thread_id: u32,
    pub(super) process: u32,
    pub(super) name: &'a str,
    pub(super) origin: Origin,
    /// Its initial state.
    pub(super) state: StateWord,
}

/// The thread of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) goroutine: u64,
    pub(crate) thread_id: u32,
    pub(super) process: u32,
}

impl Goroutine {
    /// Returns its id, which no other goroutine of this process ever has. Ids begin at 1, the main thread's. Go:
    /// `goid`.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    /// Returns its id with acquire ordering: other fields read afterwards are at least as new as when it began.
    pub(crate) fn id_of_now(&self) -> u64 {
        self.id.load(Acquire)
    }

    /// Returns the kernel's id of its thread.
    pub fn thread_id(&self) -> u32 {
        self.thread_id.load(Relaxed)
    }

    /// Returns the number that std gives its thread; 0 where it has not been noted.
    pub fn thread_number(&self) -> u64 {
        self.thread_number.load(Relaxed)
    }

    /// Notes the number that std gives its thread. Called by the goroutine itself, before it waits. Safe to call in a
    /// hook.
    pub fn set_thread_number(&self, number: u64) {
        self.thread_number.store(number, Relaxed);
    }

    /// Returns the innermost task that its thread polls. Safe to call in a hook.
    #[inline]
    pub fn polls(&self) -> Option<&'static Task> {
        self.polls.get()
    }

    /// Notes the task that its thread polls from now on. Called by the goroutine itself. Safe to call in a hook.
    #[inline]
    pub fn set_polls(&self, task: Option<&'static Task>) {
        self.polls.set(task);
    }

    /// Returns the first 64 bytes of its name; empty when it has none.
    pub fn name(&self) -> String {
        self.with_name(str::to_owned)
    }

    /// Runs `f` with [`Goroutine::name`], without allocating. Safe to call in a hook.
    pub fn with_name<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        self.name.with(f)
    }

    /// Returns the stack that created it; `None` where that is not known: for the main thread, and for threads whose
    /// creation no hook has seen.
    pub fn created_by(&self) -> Option<&'static ThreadBucket> {
        self.created_by.get()
    }

    /// Returns what it runs and where it was started; `None` where that is not known, as with
    /// [`Goroutine::created_by`].
    pub fn start(&self) -> Option<Start> {
        self.start.get()
    }

    /// Returns the id of the goroutine that created it; 0 where that is not known.
    pub(crate) fn creator(&self) -> u64 {
        self.creator.load(Relaxed)
    }

    /// Returns the labels of its thread.
    pub fn labels(&self) -> LabelSetId {
        LabelSetId::from_bits(self.labels.load(Relaxed))
    }

    /// Notes the labels of its thread. Called by the goroutine itself. Safe to call in a hook.
    #[inline]
    pub(crate) fn set_labels(&self, labels: LabelSetId) {
        self.labels.store(labels.bits(), Release);
    }

    /// Returns the progress of the current snapshot with it.
    #[inline]
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the frame from which its stack can be read while it waits.
    #[inline]
    pub(crate) fn parked(&self) -> &Parked {
        &self.parked
    }

    /// Returns its current state.
    #[inline]
    pub fn state(&self) -> StateWord {
        self.now.read()
    }

    /// Changes its state from `from`, a result of [`Goroutine::state`]. If the state has changed since, returns the
    /// current one. Safe to call in a hook. Go: `casgstatus`.
    #[inline]
    pub fn change(&self, from: StateWord, to: StateWord) -> Result<(), StateWord> {
        self.now.change(from, to)
    }

    /// Notes that a wait begins at the tick `since` of [`crate::clock`]. Called by the goroutine itself, before it
    /// changes its state. Safe to call in a hook.
    #[inline]
    pub fn note_since(&self, since: u64) {
        self.now.note_since(since);
    }

    /// Returns the tick at which its last wait began.
    pub(crate) fn since(&self) -> u64 {
        self.now.since()
    }

    /// Returns what it waits for, and the tick of [`crate::clock`] at which the wait began.
    pub fn waiting(&self) -> Option<(WaitReason, u64)> {
        self.now.waiting()
    }

    /// Returns the note of its current call.
    #[inline]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns a number that identifies the slot. It is never 0 and its low seven bits are 0, so that wait queues can
    /// store marks there.
    #[inline]
    pub fn token(&self) -> usize {
        (&raw const *self).expose_provenance()
    }

    /// Returns the slot that a token identifies.
    ///
    /// # Safety
    /// `token` is a result of [`Goroutine::token`] in this process or in an ancestor that forked it.
    #[inline]
    pub unsafe fn from_token(token: usize) -> &'static Self {
        // SAFETY: the caller passes a result of `token`, the address of a slot; slots are never freed.
        unsafe { &*core::ptr::with_exposed_provenance(token) }
    }

    /// Begins a goroutine in a slot that the caller owns.
    pub(super) fn begin(&self, identity: Identity<'_>) {
        self.set_thread(identity.thread_id, identity.process);
        self.describe(identity.name, identity.origin);
        self.set_polls(None);
        self.set_thread_number(0);
        // A thread that was cancelled in a call has not left its note.
        self.call.end();
        self.id.store(identity.id, Release);
        // Last: a reader that finds the goroutine alive can read its identity.
        self.now.reset(identity.state);
    }

    /// Ends goroutine `id`. Returns `true` for one caller only, which then owns the slot: other threads may find the
    /// same goroutine dead, and the slot may already serve another one.
    pub(super) fn end(&self, id: u64) -> bool {
        // Acquire: pairs with `begin`, so that the caller that gives the slot back sees the slot's index.
        let has_ended = id != 0 && self.id.compare_exchange(id, 0, Acquire, Relaxed).is_ok();
        if has_ended {
            self.now.reset(StateWord::new(State::Dead, 0));
        }
        has_ended
    }

    /// Sets the fields that may change while it lives. Called by the goroutine itself.
    pub(super) fn describe(&self, name: &str, origin: Origin) {
        self.name.set(name);
        // Release, here and below: a reader that reads one of these fields from a new goroutine, and then reads the id
        // again, sees that the old goroutine has ended.
        self.created_by.set(origin.created_by);
        self.start.set(origin.start);
        self.creator.store(origin.creator, Release);
    }

    /// Changes its name. Called by the goroutine itself.
    pub(super) fn rename(&self, name: &str) {
        self.name.set(name);
    }

    /// Sets its thread and its process. A fork gives the forking thread a new thread id.
    pub(super) fn set_thread(&self, thread_id: u32, process: u32) {
        self.thread_id.store(thread_id, Release);
        self.process.store(process, Release);
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    /// Returns a consistent record of the thread in this slot, if the slot is occupied.
    pub(crate) fn thread(&self) -> Option<Thread> {
        for _ in 0..TRIES {
            let goroutine = self.id.load(Acquire);
            let thread = Thread {
                goroutine,
                thread_id: self.thread_id.load(Acquire),
                process: self.process.load(Acquire),
            };
            if self.id.load(Relaxed) == goroutine {
                return (goroutine != 0).then_some(thread);
            }
        }
        None
    }

    /// Returns a consistent record of the goroutine in this slot, if the slot is occupied.
    pub(super) fn read(&self) -> Option<LiveGoroutine> {
        for _ in 0..TRIES {
            let id = self.id.load(Acquire);
            if id == 0 {
                return None;
            }
            let snapshot = LiveGoroutine {
                id,
                thread_id: self.thread_id.load(Acquire),
                name: self.name(),
                created_by: self.created_by(),
                start: self.start(),
                waiting: self.now.waiting(),
            };
            if self.id.load(Relaxed) == id {
                return Some(snapshot);
            }
        }
        None
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn identity(id: u64) -> Identity<'static> {
        let name = if id == 1 { "one" } else { "two" };
        Identity {
            id,
            thread_id: id as u32,
            process: id as u32,
            name,
            origin: Origin::default(),
            state: StateWord::new(State::Running, 0),
        }
    }

    /// A reader sees one consistent goroutine while the slot changes from one to the next, and of two threads that end
    /// it one wins.
    #[test]
    fn loom_a_goroutine_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let slot = Arc::new(Goroutine::default());
            slot.begin(identity(1));
            // The reader is the spawned thread, as in the model of waits.
            let reader = {
                let slot = slot.clone();
                loom::thread::spawn(move || {
                    if let Some(read) = slot.read() {
                        let (id, thread) = (read.id, u64::from(read.thread_id));
                        assert_eq!(thread, id);
                        assert_eq!(read.name, identity(id).name);
                    }
                    slot.end(1)
                })
            };
            let won = slot.end(1);
            if won {
                slot.begin(identity(2));
            }
            assert_ne!(reader.join().unwrap(), won, "it ends once");
        });
    }
}
