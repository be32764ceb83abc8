//! The changes that a trace shows, before they are written in a format.

use super::collector::CollectorEvent;
use super::goroutines::Phase;
use super::reason::Reason;

/// A goroutine that is started or woken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// The index of the goroutine.
    pub(crate) index: u32,
    /// Its id in the trace.
    pub(crate) goroutine: u64,
    /// The number of this change: 1 after the goroutine's creation, then one more each time.
    pub(crate) sequence: u64,
    /// Whether the goroutine's last change was on the same P.
    pub(crate) is_local: bool,
}

/// The thread that a P belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thread {
    /// The kernel's number, or one that no thread has.
    pub(crate) number: u64,
    /// The id of its own goroutine; 0 if that is unknown.
    pub(crate) goroutine: u64,
}

/// What names a goroutine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    /// The id of the stack of its name, whose only frame may be defined later.
    pub(crate) stack: u64,
    /// The id of its name; 0 while that is unknown.
    pub(crate) name: u64,
}

/// What was recorded of a goroutine that the trace did not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction {
    pub(crate) is_task: bool,
    /// The kernel's number of its thread; 0 for a task, and for a thread that has not begun.
    pub(crate) thread_id: u32,
    /// The id of the text that says why it waits, if the format has texts; 0 if it does not wait.
    pub(crate) text: u64,
}

/// A change on a P. Stacks, names and categories are ids that [`Names`](super::names::Names) gives; texts too, if the
/// format [has them](super::procs::Wire::HAS_TEXTS).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// The P begins to run, on this thread.
    ProcStart { thread: Thread },
    /// The P stops.
    ProcStop,
    /// A thread or a task is created, which can run.
    Create { index: u32, goroutine: u64, is_task: bool, start: Start, stack: u64 },
    /// A goroutine begins to run, on a P on which none runs; `label` is a text that it shows, 0 for none.
    Start { changed: Changed, label: u64 },
    /// The goroutine stops, but can run.
    Yield { text: u64, stack: u64 },
    /// The goroutine begins to wait.
    Block { reason: Reason, text: u64, stack: u64 },
    /// A goroutine that waits can run.
    Unblock { changed: Changed, stack: u64 },
    /// The goroutine begins a system call.
    SyscallBegin { stack: u64 },
    /// A goroutine's system call is over: the goroutine can run.
    SyscallEnd { changed: Changed },
    /// The goroutine ends.
    End,
    /// An event of the collector.
    Collector(CollectorEvent),
    /// Bytes of the heap in use.
    HeapAlloc { bytes: u64 },
    /// Bytes at which the next collection begins.
    HeapGoal { bytes: u64 },
    /// A user task begins; `parent` is 0 for none.
    TaskBegin { task: u64, parent: u64, name: u64, stack: u64 },
    /// A user task ends.
    TaskEnd { task: u64, stack: u64 },
    /// A region of the goroutine begins.
    RegionBegin { task: u64, name: u64, stack: u64 },
    /// The innermost region of the goroutine ends; `name` is 0 if all of them end.
    RegionEnd { task: u64, name: u64 },
    /// A message.
    Log { task: u64, category: u64, stack: u64, message: &'a [u8], text: u64 },
    /// A goroutine is in this state, at the beginning of a part of the trace or where the trace finds it. A running one
    /// runs on the P. `found` is set where the trace finds it.
    Status {
        index: u32,
        goroutine: u64,
        start: Start,
        phase: Phase,
        is_assisting: bool,
        found: Option<Introduction>,
    },
}
