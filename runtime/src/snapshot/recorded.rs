//! A goroutine in a snapshot.

use std::borrow::Cow;

use super::recording::Header;
use crate::clock;
use crate::goroutine::start::Start;
use crate::goroutine::state::State;
use crate::labels::LabelSetId;
use crate::modules::CaptureSpan;
use crate::stack::Stack;

/// The kind of a goroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GoroutineKind {
    /// An operating system thread.
    #[default]
    Thread,
    /// An async task.
    Task,
}

/// A goroutine in a snapshot.
#[derive(Clone)]
#[non_exhaustive]
pub struct Recorded {
    /// Its id.
    pub id: u64,
    /// Its kind.
    pub kind: GoroutineKind,
    /// The kernel's id of its thread. For a task: of the thread that polls it, or 0 if none does.
    pub thread_id: u32,
    /// Its name; empty when it has none.
    pub name: String,
    /// What it runs and where it was started, where that is known.
    pub start: Option<Start>,
    /// The stack that created it, where that is known.
    pub created_by: Option<Stack<'static>>,
    /// The id of the goroutine that created it; 0 where that is not known.
    pub creator: u64,
    /// Its state.
    pub state: State,
    /// How many ticks of [`crate::clock`] it had waited; 0 if it did not wait.
    pub(crate) waited_ticks: u64,
    /// For a task: an estimate that it waits for ever. See [`set_leak_limit`](super::set_leak_limit).
    pub is_leaked: bool,
    /// The labels of its thread.
    pub labels: LabelSetId,
    /// Return addresses, leaf first.
    pub stack: Cow<'static, [usize]>,
    /// For a task that waits for several things at once: the stacks of all but the first.
    pub branches: Vec<Stack<'static>>,
    /// For a thread: the ids of the tasks that it polls, innermost first, at most eight.
    pub polled: Vec<u64>,
    /// For a task: the number of its polls. Wraps at 2^31.
    pub polls: u32,
    /// When the stack was captured.
    pub span: CaptureSpan,
    /// For a thread whose stack is not available: its state according to the kernel.
    pub kernel: Option<KernelState>,
}

/// The state of a thread according to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelState {
    /// The letter of proc(5): `R` running or runnable, `S` waiting, `D` waiting and not woken by signals, `T` and `t`
    /// stopped.
    pub state: char,
    /// The kernel function in which the thread waits; empty if it does not wait, or where the kernel does not reveal
    /// it.
    pub waits_in: String,
}

impl Recorded {
    /// Returns its name, or without a name the type of the closure that it runs; empty where neither is known.
    pub fn title(&self) -> &str {
        match self.start {
            Some(start) if self.name.is_empty() => start.runs(),
            _ => &self.name,
        }
    }

    /// Returns how long it had waited; 0 if it did not wait.
    pub fn waited(&self) -> core::time::Duration {
        core::time::Duration::from_secs_f64(self.waited_ticks as f64 / clock::ticks_per_second() as f64)
    }

    pub(super) fn of(header: &Header, frames: &[usize], now: u64) -> Self {
        let state = header.state;
        let waited_ticks = match state {
            State::Waiting(_) => clock::since(header.since, now),
            _ => 0,
        };
        Self {
            id: header.id,
            kind: GoroutineKind::Thread,
            thread_id: header.thread_id,
            name: header.name().to_owned(),
            start: header.start,
            created_by: header.created_by.map(|bucket| bucket.captured()),
            creator: header.creator,
            state,
            waited_ticks,
            is_leaked: false,
            labels: header.labels,
            stack: frames.to_vec().into(),
            branches: Vec::new(),
            polled: header.polled.iter().copied().take_while(|&id| id != 0).collect(),
            polls: 0,
            span: header.span,
            kernel: None,
        }
    }
}
