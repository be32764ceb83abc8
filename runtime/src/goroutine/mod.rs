//! The registry of threads that the profiler follows, each a [`Goroutine`].
//!
//! ```text
//!   thread ── first hook, or register() ──► slot ── its end ──► free list ──► the next thread's slot
//!                 current(): a thread-local load      all(): every slot that is in use
//! ```
//!
//! A thread gets its goroutine from [`register`], called by the first function of threads that `rtprof::thread` starts,
//! or from [`current`], called by the first hook that any other thread reaches. The goroutine ends with the guard or
//! with the thread, at the latest when [`all`] finds the thread gone.
//!
//! State grows with the number of goroutines live at one time, never with the number of threads created.
//!
//! # Forks
//!
//! A forked child has one thread, with a new thread id. A fork handler of the C library updates its goroutine; the
//! other slots carry the parent's process id, and the next [`all`] ends them.
//!
//! # Locks
//!
//! None.

mod call;
mod exit;
mod live;
mod live_goroutine;
pub mod name;
pub mod observer;
mod origin;
mod parked;
mod protocol;
mod registered;
mod slot;
pub mod start;
pub mod state;
pub mod wait_reason;
pub mod wait_site;

use core::cell::Cell;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub use call::{Call, Outer};
pub use live::all;
pub(crate) use live::{Live, end_dead};
pub use live_goroutine::LiveGoroutine;
pub use origin::{Birth, Origin};
pub(crate) use parked::ParkedAt;
#[cfg(rtprof_supported)]
pub use protocol::give_way;
pub(crate) use protocol::{SNAPSHOTS, Visit};
pub use registered::{Registered, register};
pub use slot::Goroutine;

use crate::goroutine::state::{State, StateWord};
use crate::goroutine_id;
use crate::hook::{self, Hook, own_process};
use crate::labels::{self, LabelSetId};
use crate::memory::slots::SlotTable;
#[cfg(rtprof_supported)]
use crate::signal::alternate_stack;
use crate::task::{self, Task};
use crate::thread::kernel_thread;
use slot::Identity;

lazy_under_loom! {
    pub(crate) static SLOTS: SlotTable<Goroutine> = SlotTable::new();
}

static MAIN_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The thread has no goroutine.
const NONE: *mut Goroutine = null_mut();
/// The thread is getting a goroutine: a signal handler must not give it another one.
pub(crate) const ENTERING: *mut Goroutine = without_provenance_mut(1);
/// The thread is beyond its last destructor: nothing would end another goroutine.
pub(crate) const LEFT: *mut Goroutine = without_provenance_mut(2);
/// Hooks give the thread no goroutine, because its end would not be noticed.
const UNFOLLOWED: *mut Goroutine = without_provenance_mut(3);

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    // Atomic for signal handlers of the thread itself, which may give it a goroutine between any two instructions.
    static CURRENT: AtomicPtr<Goroutine> = const { AtomicPtr::new(NONE) };
    // The id of the goroutine in `CURRENT`: if the thread was mistaken for dead, the slot may hold another goroutine.
    pub(crate) static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    // The id that a snapshot gave the thread before it had a goroutine; 0 for none.
    static STRANGER_ID: Cell<u64> = const { Cell::new(0) };
}

/// Returns the current thread's goroutine. Registers a thread that is not known yet, under the kernel's name for it.
/// Returns `None` when there is no memory, before [`crate::init::open`], and after the last destructor of the thread.
/// Safe to call in a hook. Go: `getg`.
#[inline]
pub fn current() -> Option<&'static Goroutine> {
    own().or_else(|| enter_foreign(State::Running))
}

/// Returns the current thread's goroutine, as [`current`] does, for a signal handler that has interrupted the thread at
/// work. A thread that this call registers is in state syscall until its first hook: it is only known to have worked
/// now and then, and would otherwise be taken for a thread that runs all the time. Returns `None` also for a thread
/// whose goroutine has ended, because the thread is about to end too. Safe to call in a hook.
pub fn sampled() -> Option<&'static Goroutine> {
    let is_new = || CURRENT_ID.with(Cell::get) == 0;
    own().or_else(|| if is_new() { enter_foreign(State::Syscall) } else { None })
}

/// Returns the id of the running goroutine: of the task that the current thread polls, else of the thread; 0 where the
/// thread has no goroutine. Safe to call in a hook. Go: `goid`.
#[inline]
pub fn current_id() -> u64 {
    current().map_or(0, |own| own.polls().map_or(own.id(), Task::id))
}

/// Returns the current thread's goroutine without registering the thread. Safe to call in a hook.
#[inline]
pub fn known() -> Option<&'static Goroutine> {
    own()
}

#[inline]
pub(crate) fn own() -> Option<&'static Goroutine> {
    let current = current_slot();
    // SAFETY: every larger value is the address of a slot, and slots are never freed.
    (current.addr() > UNFOLLOWED.addr()).then(|| unsafe { &*current })
}

/// Returns the address of the current thread's slot, or one of the constants above.
#[inline]
pub(crate) fn current_slot() -> *mut Goroutine {
    CURRENT.with(|current| current.load(Ordering::Relaxed))
}

fn set_current_slot(slot: *mut Goroutine) {
    CURRENT.with(|current| current.store(slot, Ordering::Relaxed));
}

/// Returns the number of slots made: the highest number of goroutines live at one time, or slightly more.
pub fn slots_made() -> usize {
    SLOTS.used()
}

/// Installs the handlers for the ends of threads and for forks, and registers the current thread. Called once, by
/// [`crate::init::open`]; must not be called in a hook.
pub(crate) fn open() {
    // First, so that no thread can register and set labels that its goroutine misses.
    labels::on_change(&(note_labels as fn(LabelSetId)));
    exit::open();
    #[cfg(rtprof_supported)]
    // SAFETY: the handler allocates nothing and waits for no other thread, of which a child has none; it lives as long as
    // this code, which stays loaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    }
    current();
}

/// Sets the labels of the task that the current thread polls, else of the thread.
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

/// Registers a thread that `rtprof::thread` did not start, at its first hook, in this state.
#[cold]
fn enter_foreign(state: State) -> Option<&'static Goroutine> {
    if !may_enter(&[NONE]) {
        // A signal handler may just have given the thread a goroutine.
        return own();
    }
    if !exit::is_open() {
        set_current_slot(NONE);
        return None;
    }
    if !exit::arm() {
        // Counts the thread once, not at each wait.
        set_current_slot(UNFOLLOWED);
        goroutine_id::NOT_FOLLOWED.add();
        return None;
    }
    #[cfg(rtprof_supported)]
    alternate_stack::make_room();
    let name = kernel_thread::ThreadName::current();
    begin(name.as_str(), Origin::default(), state)
}

/// Renames the current thread's goroutine. The main thread's goroutine keeps its name. Safe to call in a hook.
pub fn rename(name: &str) {
    if let Some(own) = own().filter(|own| own.id() != goroutine_id::MAIN) {
        own.rename(name);
    }
}

/// Marks the thread as entering, if it has one of these values. Returns whether it did.
fn may_enter(from: &[*mut Goroutine]) -> bool {
    let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    let enters = |state: &*mut Goroutine| {
        CURRENT.with(|current| current.compare_exchange(*state, ENTERING, order, failed)).is_ok()
    };
    from.iter().any(enters)
}

/// Gives the current thread a goroutine with this name and origin, or gives them to the goroutine that it has.
fn enter_thread(name: &str, origin: Origin) -> Option<&'static Goroutine> {
    let is_ours = |own: &&Goroutine| own.id() == CURRENT_ID.with(Cell::get);
    // The second try is for a signal handler that registers the thread between the two checks. Handlers do so only
    // once.
    for _ in 0..2 {
        if let Some(own) = own().filter(is_ours) {
            if origin.birth.is_none() {
                own.describe(name, origin);
                return Some(own);
            }
            // A CPU sample registered the thread first. The goroutine that its creator has reported would never begin.
            end(own, own.id());
        }
        if may_enter(&[NONE, UNFOLLOWED]) {
            return enter_known(name, origin);
        }
    }
    None
}

/// Begins the goroutine of an entering thread that has registered itself.
fn enter_known(name: &str, origin: Origin) -> Option<&'static Goroutine> {
    // Without the key, only the guard ends the goroutine.
    if exit::arm() {
        #[cfg(rtprof_supported)]
        alternate_stack::make_room();
    }
    begin(name, origin, State::Running)
}

/// Begins the goroutine of an entering thread, in `state`, or as runnable if its creator has already reported it.
fn begin(name: &str, origin: Origin, state: State) -> Option<&'static Goroutine> {
    // The guard restores `errno`.
    let _hook = Hook::enter();
    let slot = SLOTS.take();
    if slot.is_none() {
        goroutine_id::NOT_FOLLOWED.add();
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
        // Set after `CURRENT`: a thread with an id and no goroutine would be taken for one that has ended.
        CURRENT_ID.with(|current| current.set(slot.id()));
        if state == State::Running {
            observer::began(slot);
        }
        observer::thread_began();
    }
    slot
}

/// Returns an id for the current thread, which has no goroutine. Hooks that register the thread later use the same id.
pub(crate) fn stranger_id() -> u64 {
    STRANGER_ID.with(|id| {
        if id.get() == 0 {
            id.set(goroutine_id::reserve());
        }
        id.get()
    })
}

/// Iterates over all slots, occupied or free, without a system call.
pub fn slots() -> impl Iterator<Item = &'static Goroutine> {
    SLOTS.iter()
}

/// Sets the mark of every goroutine to 0, before a new observer starts. Must not be called in a hook. The caller makes
/// sure that no other thread sets marks at the same time.
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

/// Iterates over this process's threads that have a goroutine, with their kernel thread ids. Some may have ended.
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

/// Ends goroutine `id`, as [`end`] does. If it is the current thread's, `CURRENT` becomes `then`.
fn replace(goroutine: &'static Goroutine, id: u64, then: *mut Goroutine) {
    if core::ptr::eq(current_slot(), goroutine) && goroutine.id() == id {
        // A thread ended in a wait has not unparked its goroutine, and its stack is about to be unmapped.
        goroutine.unpark();
        observer::ends(goroutine);
        set_current_slot(then);
    }
    if goroutine.end(id) {
        SLOTS.give_back(goroutine);
    }
}

/// Ends the goroutine of the current thread, which is beyond its last destructor.
#[cfg(rtprof_supported)]
fn leave_thread() {
    if let Some(own) = own() {
        // In one step: a signal handler that finds no goroutine would begin another one.
        replace(own, CURRENT_ID.with(Cell::get), LEFT);
    }
    set_current_slot(LEFT);
    #[cfg(rtprof_supported)]
    alternate_stack::end();
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
