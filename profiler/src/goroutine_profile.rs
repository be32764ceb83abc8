//! The goroutine profile in the form of Go's package runtime: a record for each goroutine.

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;

use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::labels;
use rtprof_runtime::snapshot;
use rtprof_runtime::snapshot::{GoroutineKind, KernelState, Recorded};

/// The state of a goroutine when it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GoroutineState {
    /// A thread that ran, or was ready to run and had no core; or a task that was polled.
    #[default]
    Running,
    /// A task that was ready to be polled, or a thread that had not begun.
    Runnable,
    /// It waited.
    Waiting(WaitReason),
    /// It waited in a system call, for something that rtprof does not see, or was in a system call that it has
    /// announced ([`syscall`](https://docs.rs/rtprof/latest/rtprof/trace)).
    Syscall,
}

impl fmt::Display for GoroutineState {
    /// Writes Go's words: `running`, `chan receive`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Runnable => "runnable",
            Self::Waiting(reason) => reason.name(),
            Self::Syscall => "syscall",
        })
    }
}

impl GoroutineState {
    /// Whether a state is written like this, in upper or lower case.
    pub fn is_known(text: &str) -> bool {
        let waits = WaitReason::ALL.into_iter().map(Self::Waiting);
        let mut all = [Self::Running, Self::Runnable, Self::Syscall].into_iter().chain(waits);
        all.any(|state| state.to_string().eq_ignore_ascii_case(text))
    }
}

impl From<State> for GoroutineState {
    fn from(state: State) -> Self {
        match state {
            State::Running | State::Dead => Self::Running,
            State::Runnable => Self::Runnable,
            State::Waiting(reason) => Self::Waiting(reason),
            State::Syscall => Self::Syscall,
        }
    }
}

/// A goroutine: its stack and its state. Go: `runtime.StackRecord`, and the contents of `runtime.Stack`.
#[derive(Clone, Debug, Default)]
pub struct GoroutineRecord {
    /// Its id: no other goroutine of the process ever has it. The main thread's is 1.
    pub id: u64,
    /// The first 64 bytes of its name. Without a name, the type of the closure that it runs, `app::main::{{closure}}`,
    /// if `rtprof::thread` has started it.
    pub name: String,
    /// Its kind.
    pub kind: GoroutineKind,
    /// Its state.
    pub state: GoroutineState,
    /// How long it had waited; 0 if it did not wait.
    pub waited: Duration,
    /// For a task: an estimate that it waits for ever, because no waker is left that could wake it
    /// ([`set_leak_limit`](https://docs.rs/rtprof/latest/rtprof/task)). These tasks are in the profile `goroutineleak`.
    pub is_leaked: bool,
    /// Its labels, in the order of keys.
    pub labels: Vec<(String, String)>,
    /// The id of the goroutine that created it; 0 where that is not known.
    pub created_by: u64,
    /// The source file and line that started it, where that is known.
    pub started_at: Option<(&'static str, u32)>,
    /// Return addresses, leaf first.
    pub frames: Cow<'static, [usize]>,
    /// For a task that waits for several things at once, as in `select!` or `join!`: the stacks of all but the first,
    /// at most four. One of these things may have completed in the same poll.
    pub branches: Vec<&'static [usize]>,
    /// For a task: the number of its polls. Wraps at 2^31.
    pub polls: u32,
    /// The kernel's id of its thread. For a task: of the thread that polls it, or 0 if none does.
    pub thread_id: u32,
    /// For a thread whose stack is not available: its state according to the kernel.
    pub kernel: Option<KernelState>,
}

impl GoroutineRecord {
    /// Returns the stack: return addresses, leaf first. Where the stack was not captured, a single address in a
    /// function whose name says why.
    pub fn stack(&self) -> &[usize] {
        &self.frames
    }

    /// Returns the stacks of all things that it waits for: [`stack`](Self::stack) first.
    pub fn stacks(&self) -> impl Iterator<Item = &[usize]> {
        core::iter::once(self.stack()).chain(self.branches.iter().copied())
    }

    /// Returns the reason for which it waited, if it waited.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        match self.state {
            GoroutineState::Waiting(reason) => Some(reason),
            _ => None,
        }
    }
}

impl From<Recorded> for GoroutineRecord {
    fn from(recorded: Recorded) -> Self {
        let waited = recorded.waited();
        let name = match recorded.start {
            Some(start) if recorded.name.is_empty() => start.runs().to_owned(),
            _ => recorded.name,
        };
        Self {
            id: recorded.id,
            name,
            kind: recorded.kind,
            state: recorded.state.into(),
            waited,
            is_leaked: recorded.is_leaked,
            labels: labels::resolve(recorded.labels).to_vec(),
            created_by: recorded.creator,
            started_at: recorded.start.map(|start| (start.at().file(), start.at().line())),
            frames: recorded.stack,
            branches: recorded.branches.into_iter().map(|stack| stack.addresses).collect(),
            polls: recorded.polls,
            thread_id: recorded.thread_id,
            kernel: recorded.kernel,
        }
    }
}

/// Returns all goroutines live at one instant, with their stacks: the current one first, then in the order of their
/// ids. Go: `runtime.GoroutineProfile`.
///
/// No thread is stopped. If a thread waits in `rtprof::sync` or `rtprof::thread`, or in `rtprof::trace::wait` with a
/// trace or the block profile on, its stack is read while it waits. Any other thread, also one that rtprof does not
/// know, receives a signal, unless [`set_thread_signals`](snapshot::set_thread_signals) forbids it. A thread that does
/// not answer within 2 s (0.1 s if it is stopped or in an uninterruptible wait) has a single frame, whose name says
/// why, and its state in [`GoroutineRecord::kernel`]. Async tasks that wait without a stack are polled once first,
/// which takes up to 2 s ([`snapshot::request`]). A call lasts at most 14 s, unless a debugger stops a single thread
/// inside the handler. Must not be called in a signal handler: it takes a lock. It calls the program's allocator; if
/// the allocator calls this function in turn, that call returns no goroutines.
pub fn goroutine_profile() -> Vec<GoroutineRecord> {
    snapshot::request();
    snapshot::take()
}

/// Writes the records of [`goroutine_profile`] into `records`. Returns the number of records, and whether they fitted;
/// if `records` is too short nothing is written.
pub fn goroutine_profile_into(records: &mut [GoroutineRecord]) -> (usize, bool) {
    snapshot::request();
    let all: Vec<Recorded> = snapshot::take();
    if all.len() > records.len() {
        return (all.len(), false);
    }
    let n = all.len();
    for (record, recorded) in records.iter_mut().zip(all) {
        *record = recorded.into();
    }
    (n, true)
}

/// Returns the number of live goroutines: all threads of the process. Without /proc it counts only the threads that
/// rtprof knows: those that it has started, and those that have waited in its locks and the like. Go:
/// `runtime.NumGoroutine`.
pub fn num_goroutine() -> usize {
    rtprof_runtime::init::open();
    goroutine::current();
    snapshot::count()
}
