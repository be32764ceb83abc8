//! The work of threads while they are sampled: they count their stacks at each signal, and attach themselves when they
//! begin.

use rtprof_runtime::boundary;
use rtprof_runtime::goroutine::observer;
use rtprof_runtime::hook::errno;
use rtprof_runtime::labels;
use rtprof_runtime::stack::{self, Interrupted, MAX_STACK, marker};
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

use super::attach::{Attacher, Since};
use super::cpu_time;
use super::event::Cause;
use super::thread::CpuThread;
use crate::cpu::current::Current;
use crate::cpu::samples::{CpuKey, Samples};
use crate::cpu::task_names::TaskName;

rtprof_runtime::lazy_under_loom! {
    /// The current sampling, for handlers.
    pub(super) static SAMPLING: Current<Sampling> = Current::new();
}
/// A running sampling.
pub(super) struct Sampling {
    pub(super) samples: Samples,
    pub(super) attacher: Attacher,
    /// Whether the samples of each thread are counted separately.
    pub(super) by_thread: bool,
}

impl Sampling {
    /// Takes a sample in the handler of the thread that has used up a period; `id` is the thread's id, which the slot
    /// may no longer have.
    pub(super) fn sample(&self, (thread, id): (&CpuThread, u32), cause: Cause, interrupted: Interrupted) {
        let due = thread.charge(cause, &self.attacher);
        if due == 0 {
            return;
        }
        if self.by_thread {
            thread.name.note();
        }
        let key = self.key(id);
        let count = |stack: &[usize]| {
            // The stack inside a task's boundary is the task's only.
            let (stack, task) = match boundary::end(stack) {
                Some(end) => (&stack[..end], self.samples.task_name()),
                // The boundary was cut off, as the stack is truncated.
                None if stack.len() == MAX_STACK => (stack, self.samples.task_name()),
                None => (stack, TaskName::NONE),
            };
            self.samples.add(CpuKey { task, ..key }, stack, due);
            observer::cpu_sample(stack, due);
        };
        if interrupted.with_stack(count).is_none() {
            // The trace does not receive this sample: only a few hundred bytes of the thread's stack may be left.
            stack::NOT_CAPTURED.add();
            let stack = [interrupted.frame(), marker::frame(marker::stack_not_captured)];
            self.samples.add(CpuKey { task: self.samples.task_name(), ..key }, &stack, due);
        }
        thread.rest();
    }

    /// Counts the current thread's time since its last sample as not sampled, before the thread ends the sampling. A
    /// timer that has not expired while the thread worked could expire while it waits for the end, and charge the work
    /// to the wait.
    pub(super) fn settle_own(&self) {
        let id = kernel_thread_id();
        let Some(thread) = CpuThread::all().find(|thread| thread.id() == id && !thread.is_silent()) else {
            return;
        };
        let missed =
            cpu_time::own().map_or(0, |now| thread.account.settle_overdue(now, self.attacher.period()));
        if missed > 0 {
            self.samples.add(self.key(id), &[marker::frame(marker::cpu_time_not_sampled)], missed);
        }
    }

    /// Returns the key of samples of the current thread, whose id is `id`.
    fn key(&self, id: u32) -> CpuKey {
        let thread = if self.by_thread { id } else { 0 };
        CpuKey { labels: labels::current_id(), thread, task: TaskName::NONE }
    }
}

/// Attaches the current thread, which begins. Safe to call in a hook.
#[inline]
pub(in crate::cpu) fn thread_began() {
    if SAMPLING.is_set() {
        attach_own();
    }
}

#[cold]
fn attach_own() {
    errno::kept(|| {
        SAMPLING.with(|sampling| {
            // If this fails, the sampler thread finds the thread.
            sampling.attacher.attach(kernel_thread_id(), blocked(), Since::Birth);
        });
    });
}

/// Returns the signals that the current thread blocks: bit 0 for signal 1.
fn blocked() -> u64 {
    let mut blocked = 0_u64;
    let (none, size) = (core::ptr::null::<u64>(), size_of::<u64>());
    // SAFETY: the call only reads the mask, and writes to the local, whose size it receives.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut blocked, size) };
    blocked
}
