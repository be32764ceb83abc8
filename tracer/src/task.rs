//! User tasks: named pieces of work that span goroutines.

use core::cell::Cell;
use core::marker::PhantomData;

use rtprof_runtime::memory::slots::{Slot, SlotIndex, SlotTable};
use rtprof_runtime::primitive::{AtomicU64, Ordering};

use crate::record::RecordKind;
use crate::session;
use crate::thread::{is_enabled, record_any};

/// A live task. A thread whose current task this is looks here to learn whether the task has ended.
#[derive(Default)]
struct Live {
    /// 0 when the slot is free.
    id: AtomicU64,
    index: SlotIndex,
}

// SAFETY: numbers, for which zero is valid.
unsafe impl Slot for Live {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

rtprof_runtime::lazy_under_loom! {
    static LIVE: SlotTable<Live> = SlotTable::new();
}
rtprof_runtime::lazy_under_loom! {
    static LAST: AtomicU64 = AtomicU64::new(0);
}

/// A task's slot, its number, and its trace; 0 for none.
#[derive(Clone, Copy)]
struct Identity {
    live: Option<&'static Live>,
    id: u64,
    session: u32,
}

const NONE: Identity = Identity { live: None, id: 0, session: 0 };

thread_local! {
    // No destructor and no lazy initialisation (rust#116390).
    static CURRENT: Cell<Identity> = const { Cell::new(NONE) };
}

/// The current user task of an async task that is not being polled; during a poll, the one that was current on the
/// polling thread. Safe to use in a hook.
pub struct Suspended(Identity);

impl Suspended {
    /// No task is current.
    pub const NONE: Self = Self(NONE);

    /// Exchanges it with the current task of the current thread, when a poll begins or ends.
    #[inline]
    pub fn swap(&mut self) {
        self.0 = CURRENT.with(|current| current.replace(self.0));
    }

    /// `task` is current.
    pub fn of(task: &Task) -> Self {
        Self(task.identity)
    }

    /// Whether no task is current.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.0.id == 0
    }
}

impl core::fmt::Debug for Suspended {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Suspended").field(&self.0.id).finish()
    }
}

/// Returns the number of the current thread's task; 0 for none. Does not return a task that has ended elsewhere, nor
/// one of an earlier trace, which may have been left behind by a poll during which that trace began and ended.
pub(crate) fn current() -> u64 {
    let Identity { live, id, session: of } = CURRENT.with(Cell::get);
    match live {
        Some(live) if live.id.load(Ordering::Relaxed) == id && of == session::number() => id,
        _ => 0,
    }
}

/// A piece of work, from its creation until it is dropped, which may be on another thread. Go: `trace.Task`,
/// `trace.NewTask`.
///
/// It is the *current* task of the goroutine that creates it, a thread or a task of `rtprof::task`: regions and logs of
/// that goroutine belong to it, until it ends or another task becomes current. On other goroutines that work for it,
/// [`Task::enter`] makes it current.
///
/// A task created while nothing is recorded has no effect, not even in a trace that begins later.
#[must_use = "the task ends when this is dropped"]
pub struct Task {
    identity: Identity,
    /// The task that was current on the creating thread.
    before: Identity,
}

impl Task {
    /// Begins a task. A name is cut to 1,024 bytes. While nothing is recorded this is one load.
    #[inline]
    pub fn new(name: &str) -> Self {
        Self::begin(name, 0)
    }

    /// Begins a child task of this one.
    #[inline]
    pub fn child(&self, name: &str) -> Self {
        Self::begin(name, if self.is_of_this_trace() { self.identity.id } else { 0 })
    }

    #[inline]
    fn begin(name: &str, parent: u64) -> Self {
        if is_enabled()
            && let Some(task) = Self::create(name, parent)
        {
            return task;
        }
        Self { identity: NONE, before: NONE }
    }

    #[cold]
    #[inline(never)]
    fn create(name: &str, parent: u64) -> Option<Self> {
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let recorded = record_any(|writer| {
            if writer.count_if_lost() {
                return None;
            }
            let (name, stack) = (writer.string(name), writer.stack());
            writer.write(RecordKind::TaskCreate, writer.now(), [id, parent, name.into(), stack.into()]);
            // No other trace can begin within this event.
            Some(session::number())
        });
        let session = recorded??;
        let live = LIVE.take();
        if let Some(live) = live {
            live.id.store(id, Ordering::Relaxed);
        }
        let identity = Identity { live, id, session };
        let before = CURRENT.with(|current| current.replace(identity));
        Some(Self { identity, before })
    }

    /// Makes this the current task of the current thread until the result is dropped. Until then, regions and logs of
    /// the thread belong to the task.
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        let before = CURRENT.with(|current| current.replace(self.identity));
        Entered { before, _of_this_thread: PhantomData }
    }

    /// Ends the task, as dropping it does. Go: `Task.End`.
    pub fn end(self) {}

    /// Whether the trace that is being written has the task.
    pub fn is_recorded(&self) -> bool {
        is_enabled() && self.is_of_this_trace()
    }

    fn is_of_this_trace(&self) -> bool {
        self.identity.session != 0 && self.identity.session == session::number()
    }

    #[cold]
    #[inline(never)]
    fn finish(&self) {
        let id = self.identity.id;
        CURRENT.with(|current| {
            if current.get().id == id {
                current.set(self.before);
            }
        });
        if let Some(live) = self.identity.live {
            live.id.store(0, Ordering::Relaxed);
            LIVE.give_back(live);
        }
        if is_enabled() {
            record_any(|writer| {
                if self.is_of_this_trace() && !writer.count_if_lost() {
                    let stack = writer.stack();
                    writer.write(RecordKind::TaskEnd, writer.now(), [id, stack.into()]);
                }
            });
        }
    }
}

impl Drop for Task {
    #[inline]
    fn drop(&mut self) {
        if self.identity.session != 0 {
            self.finish();
        }
    }
}

impl core::fmt::Debug for Task {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Task").field("id", &self.identity.id).finish_non_exhaustive()
    }
}

/// Guard that keeps a task current on this thread. When it is dropped, the previous task becomes current again.
#[must_use = "the task is current until this is dropped"]
pub struct Entered<'a> {
    before: Identity,
    _of_this_thread: PhantomData<(&'a Task, *const ())>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.before));
    }
}

impl core::fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Entered")
    }
}
