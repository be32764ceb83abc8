//! What the profiler follows as one line of execution: operating system threads, each a [`Goroutine`].
//!
//! ```text
//!   thread ── first hook, or register() ──► slot ── its end ──► free list ──► the next thread's slot
//!                 current(): a thread-local load      all(): every slot that is in use
//! ```
//!
//! A thread has its goroutine from [`register`], called by the first function of threads that
//! `rtprof::thread` starts, or from [`current`], called by the first hook that any other thread reaches. It
//! ends with the guard or with the thread, at the latest when [`all`] finds the thread gone.
//!
//! State grows with the goroutines that are live at one time, never with threads created.
//!
//! # Forks
//!
//! A forked child has one thread, under a new number. A handler of the C library tells its goroutine so; the
//! other slots bear the parent's number, and are ended by the next [`all`].
//!
//! # Locks
//!
//! None.

mod call;
mod exit;
mod live;
pub mod observer;
mod parked;
mod protocol;
mod registered;
mod slot;

use core::cell::Cell;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub use call::{Call, Outer};
pub(crate) use live::{Live, end_dead};
pub use live::{LiveGoroutine, all};
pub(crate) use parked::ParkedAt;
#[cfg(rtprof_supported)]
pub use protocol::give_way;
pub(crate) use protocol::{SNAPSHOTS, Visit};
pub use registered::{Birth, Origin, Registered, register};
pub use slot::Goroutine;

use crate::counters::COUNTERS;
use crate::goroutine_id;
use crate::hook::{self, Hook, own_process};
use crate::kernel_thread;
use crate::labels::{self, LabelSetId};
use crate::slots::SlotTable;
use crate::state::{State, StateWord};
use crate::task::{self, Task};
use slot::Identity;

lazy_under_loom! {
    pub(crate) static SLOTS: SlotTable<Goroutine> = SlotTable::new();
}

static MAIN_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The thread has no goroutine.
const NONE: *mut Goroutine = null_mut();
/// It is getting one: a signal handler must not give it another.
pub(crate) const ENTERING: *mut Goroutine = without_provenance_mut(1);
/// It is beyond its last destructor: nobody would end another one.
pub(crate) const LEFT: *mut Goroutine = without_provenance_mut(2);
/// Hooks give it none, as nobody would tell of its end.
const UNFOLLOWED: *mut Goroutine = without_provenance_mut(3);

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    // Atomic for signal handlers of the thread itself, which may give it a goroutine between any two instructions.
    static CURRENT: AtomicPtr<Goroutine> = const { AtomicPtr::new(NONE) };
    // The id of that: in a thread that was mistaken for dead the slot may be another's.
    pub(crate) static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    // The number under which a snapshot has found the thread before it had a goroutine; 0 for none.
    static STRANGER_ID: Cell<u64> = const { Cell::new(0) };
}

/// The current thread's goroutine. A thread that is not known yet is registered, under the kernel's name for
/// it. `None` when there is no memory for it, before [`crate::init::open`], and after the last destructor of
/// the thread. For hooks. Go: `getg`.
#[inline]
pub fn current() -> Option<&'static Goroutine> {
    own().or_else(|| enter_foreign(State::Running))
}

/// As [`current`], in a signal handler that has found the thread at work. One that is registered by this is in a system call
/// until its first hook: all that is known of it is that it has worked now and then, and it would else be taken for one that
/// runs all the time. `None` also of a thread whose goroutine has ended: it is about to end too. For hooks.
pub fn sampled() -> Option<&'static Goroutine> {
    let is_new = || CURRENT_ID.with(Cell::get) == 0;
    own().or_else(|| if is_new() { enter_foreign(State::Syscall) } else { None })
}

/// The number of the goroutine that runs: of the task that the current thread polls, or of the thread; 0 where the thread has
/// no goroutine. For hooks. Go: `goid`.
#[inline]
pub fn current_id() -> u64 {
    current().map_or(0, |own| own.polls().map_or(own.id(), Task::id))
}

/// As [`current`], without registering. For hooks.
#[inline]
pub fn known() -> Option<&'static Goroutine> {
    own()
}

#[inline]
pub(crate) fn own() -> Option<&'static Goroutine> {
    let current = current_slot();
    // SAFETY: anything else is a slot's address, and slots are never freed.
    (current.addr() > UNFOLLOWED.addr()).then(|| unsafe { &*current })
}

/// The address of its slot, or one of the marks above.
#[inline]
pub(crate) fn current_slot() -> *mut Goroutine {
    CURRENT.with(|current| current.load(Ordering::Relaxed))
}

fn set_current_slot(slot: *mut Goroutine) {
    CURRENT.with(|current| current.store(slot, Ordering::Relaxed));
}

/// Most goroutines that were ever live at one time, or a few more: the slots that were made.
pub fn slots_made() -> usize {
    SLOTS.used()
}

/// Makes it known when threads end and when the process forks, and registers the current thread. Once, by
/// [`crate::init::open`]; not for hooks.
pub(crate) fn open() {
    exit::open();
    labels::on_change(&(note_labels as fn(LabelSetId)));
    #[cfg(rtprof_supported)]
    // SAFETY: the handler only stores to its thread's own slot, and lives as long as this code, which stays
    // loaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    }
    current();
}

/// The current thread has these labels, or the task that it polls.
fn note_labels(labels: LabelSetId) {
    if let Some(thread) = known() {
        match thread.polls() {
            Some(task) => task.set_labels(labels),
            None => thread.set_labels(labels),
        }
    }
}

#[cfg(rtprof_supported)]
unsafe extern "C" fn forked() {
    hook::forked();
    SNAPSHOTS.forget();
    observer::forked();
    task::forked(own().and_then(Goroutine::polls));
    if let Some(own) = own() {
        own.set_thread(kernel_thread::thread_id(), own_process());
    }
}

/// The first hook of a thread that `rtprof::thread` did not start, which is in this state.
#[cold]
fn enter_foreign(state: State) -> Option<&'static Goroutine> {
    if !may_enter(&[NONE]) {
        // A signal handler may just have given it one.
        return own();
    }
    if !exit::is_open() {
        set_current_slot(NONE);
        return None;
    }
    if !exit::arm() {
        // Counted once, not at each wait.
        set_current_slot(UNFOLLOWED);
        COUNTERS.goroutines_not_followed.add();
        return None;
    }
    let name = kernel_thread::ThreadName::current();
    begin(name.as_str(), Origin::default(), state)
}

/// The current thread has another name. That of the main thread's goroutine stays. For hooks.
pub fn rename(name: &str) {
    if let Some(own) = own().filter(|own| own.id() != goroutine_id::MAIN) {
        own.rename(name);
    }
}

/// Begins to enter, from one of these states.
fn may_enter(from: &[*mut Goroutine]) -> bool {
    let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    let enters = |state: &*mut Goroutine| {
        CURRENT.with(|current| current.compare_exchange(*state, ENTERING, order, failed)).is_ok()
    };
    from.iter().any(enters)
}

/// Gives the current thread a goroutine, or the one it has this name and origin.
fn enter_thread(name: &str, origin: Origin) -> Option<&'static Goroutine> {
    let is_ours = |own: &&Goroutine| own.id() == CURRENT_ID.with(Cell::get);
    // Once more if a signal handler gives it one between the two questions. Handlers do so only once.
    for _ in 0..2 {
        if let Some(own) = own().filter(is_ours) {
            if origin.birth.is_none() {
                own.describe(name, origin);
                return Some(own);
            }
            // A sample has met the thread first. The goroutine that its creator has told of would never begin.
            end(own, own.id());
        }
        if may_enter(&[NONE, UNFOLLOWED]) {
            return enter_known(name, origin);
        }
    }
    None
}

/// The thread is entering, with what is known of it.
fn enter_known(name: &str, origin: Origin) -> Option<&'static Goroutine> {
    // Without the key, the guard alone ends it.
    exit::arm();
    begin(name, origin, State::Running)
}

/// The thread is entering. It is in this state, unless it has a creator who has settled that it can run.
fn begin(name: &str, origin: Origin, state: State) -> Option<&'static Goroutine> {
    // Leaves `errno` as it was.
    let _hook = Hook::enter();
    let slot = SLOTS.take();
    if slot.is_none() {
        COUNTERS.goroutines_not_followed.add();
    }
    if let Some(slot) = slot {
        let (thread_id, process) = (kernel_thread::thread_id(), own_process());
        let is_main = thread_id == process && !MAIN_IS_TAKEN.swap(true, Ordering::Relaxed);
        let id = match origin.birth {
            Some(birth) => birth.goroutine,
            None if is_main => goroutine_id::MAIN,
            None => match STRANGER_ID.with(|id| id.replace(0)) {
                0 => goroutine_id::reserve(),
                known => known,
            },
        };
        let name = if is_main { "main" } else { name };
        let word = match origin.birth {
            Some(birth) => StateWord::new(State::Runnable, birth.mark),
            None => StateWord::new(state, 0),
        };
        slot.set_labels(labels::current_id());
        slot.progress().begin(&SNAPSHOTS);
        slot.parked().end();
        slot.begin(Identity { id, thread_id, process, name, origin, state: word });
    }
    set_current_slot(slot.map_or(NONE, |slot| (&raw const *slot).cast_mut()));
    if let Some(slot) = slot {
        // After the other one: with an id and no goroutine it would be taken for one that has ended.
        CURRENT_ID.with(|current| current.set(slot.id()));
        if state == State::Running {
            observer::began(slot);
        }
        observer::thread_began();
    }
    slot
}

/// The number of the current thread, which has no goroutine: that of its goroutine, if hooks give it one later.
pub(crate) fn stranger_id() -> u64 {
    STRANGER_ID.with(|id| {
        if id.get() == 0 {
            id.set(goroutine_id::reserve());
        }
        id.get()
    })
}

/// All slots, whether a goroutine is in them or not: for those who look at many, and ask the kernel for none.
pub fn slots() -> impl Iterator<Item = &'static Goroutine> {
    SLOTS.iter()
}

/// Sets the mark of every goroutine to 0, before a new observer starts. Not for hooks. The caller makes sure that no other
/// thread sets marks meanwhile.
pub fn clear_marks() {
    for goroutine in SLOTS.iter() {
        let mut word = goroutine.state();
        while word.mark() != 0 {
            match goroutine.change(word, word.with_mark(0)) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
    }
}

/// Those of this process's threads that have a goroutine, by the kernel's numbers. Some may have ended.
#[cfg(rtprof_supported)]
pub fn known_threads() -> impl Iterator<Item = (u32, &'static Goroutine)> {
    let process = own_process();
    SLOTS.iter().filter_map(move |slot| {
        let thread = slot.thread().filter(|thread| thread.process == process)?;
        Some((thread.thread_id, slot))
    })
}

/// Ends goroutine `id`, if it has not ended yet.
pub(crate) fn end(goroutine: &'static Goroutine, id: u64) {
    replace(goroutine, id, NONE);
}

/// As [`end`]. If it is the current thread's, the thread has `then` instead.
fn replace(goroutine: &'static Goroutine, id: u64, then: *mut Goroutine) {
    if core::ptr::eq(current_slot(), goroutine) && goroutine.id() == id {
        // A thread that was ended in a wait has not said that it waits no more, and its stack goes away.
        goroutine.unpark();
        observer::ends(goroutine);
        set_current_slot(then);
    }
    if goroutine.end(id) {
        SLOTS.give_back(goroutine);
    }
}

/// The current thread is beyond its last destructor.
#[cfg(rtprof_supported)]
fn leave_thread() {
    if let Some(own) = own() {
        // At once: a signal handler that finds none would begin another.
        replace(own, CURRENT_ID.with(Cell::get), LEFT);
    }
    set_current_slot(LEFT);
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
