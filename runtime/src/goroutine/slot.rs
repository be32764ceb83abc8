//! A goroutine: the slot that says who it is and what it waits for.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::call::Call;
use super::live::LiveGoroutine;
use super::parked::Parked;
use super::protocol::Progress;
use super::registered::Origin;
use crate::atomic_ref::AtomicRef;
use crate::labels::LabelSetId;
use crate::name::Name;
use crate::primitive::{AtomicU32, AtomicU64};
use crate::slots::{Slot, SlotIndex};
use crate::start::{Start, StartCell};
use crate::state::{Now, State, StateWord};
use crate::task::Task;
use crate::thread_create::ThreadBucket;
use crate::wait_reason::WaitReason;
use crate::wait_site::NotedSite;

/// Tries of a reader that goroutines keep coming and going under.
const TRIES: usize = 8;

/// One line of execution that the profiler follows: an operating system thread. Go: `g`.
///
/// Lives for ever, but not as the same goroutine: when one has ended, its slot serves a later one, which
/// [`Goroutine::id`] tells apart.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Goroutine {
    /// 0 while the slot is free. Written last when a goroutine begins and first when it ends, so that who
    /// reads the same number before and after the rest has read one goroutine.
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
    /// The task that its thread polls, the innermost one.
    polls: AtomicRef<Task>,
    thread_number: AtomicU64,
    wait_site: NotedSite,
    name: Name,
    index: SlotIndex,
}

// SAFETY: atomics of numbers and pointers, for which zero is valid: a slot that is free.
unsafe impl Slot for Goroutine {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

/// Who a goroutine is.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) id: u64,
    pub(super) thread_id: u32,
    pub(super) process: u32,
    pub(super) name: &'a str,
    pub(super) origin: Origin,
    /// What it does at first.
    pub(super) state: StateWord,
}

/// Which thread a goroutine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) goroutine: u64,
    pub(crate) thread_id: u32,
    pub(super) process: u32,
}

impl Goroutine {
    /// Its number: of all goroutines of this process no other ever has it. They begin at 1, which is the
    /// main thread's. Go: `goid`.
    pub fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    /// Its number. Whoever reads anything else of it then reads what it has written before it began, or later.
    pub(crate) fn id_of_now(&self) -> u64 {
        self.id.load(Acquire)
    }

    /// The kernel's number of its thread.
    pub fn thread_id(&self) -> u32 {
        self.thread_id.load(Relaxed)
    }

    /// The number that std has for its thread; 0 where it has not been noted.
    pub fn thread_number(&self) -> u64 {
        self.thread_number.load(Relaxed)
    }

    /// Notes the number that std has for its thread. Called by the goroutine itself, before it waits. For hooks.
    pub fn set_thread_number(&self, number: u64) {
        self.thread_number.store(number, Relaxed);
    }

    /// Where its last wait was that others may have ended. Noted by the goroutine itself, before it waits.
    pub fn wait_site(&self) -> &NotedSite {
        &self.wait_site
    }

    /// The task that its thread polls: the innermost one. For hooks.
    #[inline]
    pub fn polls(&self) -> Option<&'static Task> {
        self.polls.get()
    }

    /// Notes which task its thread polls from now on. Called by the goroutine itself. For hooks.
    #[inline]
    pub fn set_polls(&self, task: Option<&'static Task>) {
        self.polls.set(task);
    }

    /// Its name, at most 64 bytes of it; empty when it has none.
    pub fn name(&self) -> String {
        self.with_name(str::to_owned)
    }

    /// Runs `f` with [`Goroutine::name`], which is not allocated. For hooks.
    pub fn with_name<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        self.name.with(f)
    }

    /// The stack that created it; `None` where that is not known: of the main thread, and of threads that no hook has seen
    /// created.
    pub fn created_by(&self) -> Option<&'static ThreadBucket> {
        self.created_by.get()
    }

    /// What it runs and where it was started; `None` where that is not known, as with [`Goroutine::created_by`].
    pub fn start(&self) -> Option<Start> {
        self.start.get()
    }

    /// The number of the goroutine that created it; 0 where that is not known.
    pub fn creator(&self) -> u64 {
        self.creator.load(Relaxed)
    }

    /// The labels of its thread.
    pub fn labels(&self) -> LabelSetId {
        LabelSetId::from_bits(self.labels.load(Relaxed))
    }

    /// Notes the labels of its thread. Called by the goroutine itself. For hooks.
    #[inline]
    pub(crate) fn set_labels(&self, labels: LabelSetId) {
        self.labels.store(labels.bits(), Release);
    }

    /// How far a snapshot of stacks has come with it.
    #[inline]
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Where its stack can be read while it waits.
    #[inline]
    pub(crate) fn parked(&self) -> &Parked {
        &self.parked
    }

    /// What it does now.
    #[inline]
    pub fn state(&self) -> StateWord {
        self.now.read()
    }

    /// Changes what it does from what [`Goroutine::state`] returned; if that is not so any more, returns what it
    /// is. For hooks. Go: `casgstatus`.
    #[inline]
    pub fn change(&self, from: StateWord, to: StateWord) -> Result<(), StateWord> {
        self.now.change(from, to)
    }

    /// Notes that a wait begins at the tick `since` of [`crate::clock`]. Called by the goroutine itself, before
    /// the change. For hooks.
    #[inline]
    pub fn note_since(&self, since: u64) {
        self.now.note_since(since);
    }

    /// The tick at which its last wait began.
    pub(crate) fn since(&self) -> u64 {
        self.now.since()
    }

    /// What it waits for, and since which tick of [`crate::clock`].
    pub fn waiting(&self) -> Option<(WaitReason, u64)> {
        self.now.waiting()
    }

    /// The call that it is in.
    #[inline]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// A number that stands for the slot, never 0, its low seven bits 0: for wait queues, which add marks of
    /// their own there.
    #[inline]
    pub fn token(&self) -> usize {
        (&raw const *self).expose_provenance()
    }

    /// The slot that a token stands for.
    ///
    /// # Safety
    /// `token` is what [`Goroutine::token`] returned, in this process or in one that it was forked from.
    #[inline]
    pub unsafe fn from_token(token: usize) -> &'static Self {
        // SAFETY: the address of a slot, by the caller's promise; slots are never freed.
        unsafe { &*core::ptr::with_exposed_provenance(token) }
    }

    /// Begins a goroutine in a slot that is the caller's alone.
    pub(super) fn begin(&self, identity: Identity<'_>) {
        self.set_thread(identity.thread_id, identity.process);
        self.describe(identity.name, identity.origin);
        self.set_polls(None);
        self.set_thread_number(0);
        self.wait_site.set(None);
        // A thread that was cancelled in a call has not said that it left.
        self.call.reset();
        self.id.store(identity.id, Release);
        // Last: who finds it alive finds out who it is.
        self.now.reset(identity.state);
    }

    /// Ends goroutine `id`. `true` for one caller only, who has the slot to himself then: the goroutine may
    /// have been found dead by others, and the slot may be another's already.
    pub(super) fn end(&self, id: u64) -> bool {
        // Acquire: pairs with `begin`, so that the slot's number is known to whoever gives it back.
        let has_ended = id != 0 && self.id.compare_exchange(id, 0, Acquire, Relaxed).is_ok();
        if has_ended {
            self.now.reset(StateWord::new(State::Dead, 0));
        }
        has_ended
    }

    /// What may change while it lives. Called by the goroutine itself.
    pub(super) fn describe(&self, name: &str, origin: Origin) {
        self.name.set(name);
        // Release, here and below: who reads any of this of a new goroutine, and then looks at the id
        // again, sees that the old one is over.
        self.created_by.set(origin.created_by);
        self.start.set(origin.start);
        self.creator.store(origin.creator, Release);
    }

    /// Gives it another name. Called by the goroutine itself.
    pub(super) fn rename(&self, name: &str) {
        self.name.set(name);
    }

    /// The thread it runs on, and the process it is seen in. A fork gives the thread that forked another
    /// number.
    pub(super) fn set_thread(&self, thread_id: u32, process: u32) {
        self.thread_id.store(thread_id, Release);
        self.process.store(process, Release);
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    /// Which thread is in this slot, if there is one, of one piece.
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

    /// The goroutine in this slot, if there is one, of one piece.
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

    /// A reader sees one goroutine of one piece while the slot goes from one to the next, and of two that
    /// end it one wins.
    #[test]
    fn loom_a_goroutine_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let slot = Arc::new(Goroutine::default());
            slot.begin(identity(1));
            // The reader is the spawned one, as in the model of waits.
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
