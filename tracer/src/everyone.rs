//! Passes over all goroutines by the drain: at the start of a trace, at its cuts and at its end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rtprof_runtime::clock;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::hook::listeners;
use rtprof_runtime::hook::own_process;
use rtprof_runtime::labels;
use rtprof_runtime::snapshot;
use rtprof_runtime::thread::kernel_thread;

use crate::declared::Declared as _;
use crate::lane_writer::LaneWriter;
use crate::record::RecordKind;
use crate::recorder::Patience;
use crate::states;
use crate::thread::RECORDER;

/// Goroutines that are recorded within one event of the shared lane.
const AT_ONCE: usize = 64;
/// How long to wait for threads that are within an event but do not run.
const PATIENCE: Duration = Duration::from_secs(5);

/// A goroutine whose thread was found waiting in the kernel when the trace began, and which has reached no hook since.
struct FoundInKernel {
    goroutine: &'static Goroutine,
    /// The number of the goroutine's last change.
    number: u64,
}

/// The goroutines that were found in the kernel.
#[derive(Default)]
pub(crate) struct InKernel(VecDeque<FoundInKernel>);

/// Threads that are looked at again at one time. A look takes some microseconds.
const LOOKS: usize = 8;

impl InKernel {
    /// Finds the goroutines in the kernel at the start of a trace, and declares all goroutines. Otherwise a thread that
    /// waits in a call without a hook would be taken for a running one.
    pub(crate) fn find_and_declare() -> Self {
        let find = |goroutine| {
            let found = states::find_in_kernel(goroutine)?;
            Some(FoundInKernel { goroutine, number: found.number() })
        };
        let found = goroutine::slots().filter_map(find).collect();
        declare();
        Self(found)
    }

    /// Looks again at some of them, in turn: a goroutine whose thread runs now has returned from a call that began
    /// before the trace. This is done only where all blocking calls have hooks: elsewhere the thread may be back in the
    /// kernel before its goroutine is recorded.
    pub(crate) fn look_again(&mut self) {
        if !listeners::are_calls_seen() {
            return;
        }
        for _ in 0..LOOKS.min(self.0.len()) {
            let Some(found) = self.0.pop_front() else { return };
            let FoundInKernel { goroutine, number } = found;
            let word = goroutine.state();
            if word.state() != State::Syscall || word.number() != number {
                continue;
            }
            // The profiler's own threads run now and then, and reach no hook.
            if labels::is_own(goroutine.labels())
                || kernel_thread::is_waiting(goroutine.thread_id()) != Some(false)
            {
                self.0.push_back(found);
            } else if goroutine.change(word, word.next(State::Running, word.lost())).is_ok() {
                record_of([goroutine].into_iter(), |writer, goroutine| writer.declare(goroutine));
            }
        }
    }
}

/// Restores the states, because the next trace looks for itself.
impl Drop for InKernel {
    fn drop(&mut self) {
        for FoundInKernel { goroutine, number } in self.0.drain(..) {
            let word = goroutine.state();
            if word.state() == State::Syscall && word.number() == number {
                let _ = goroutine.change(word, word.next(State::Running, word.lost()));
            }
        }
    }
}

/// Declares all goroutines that are not declared yet in the present generation.
pub(crate) fn declare() {
    record_of(goroutine::slots(), |writer, goroutine| writer.declare(goroutine));
    record_of(snapshot::live_tasks(), |writer, task| writer.declare_task(task));
}

/// Records which goroutines are in a call that is long already. The record of a call comes at its end, which may be in
/// another generation, or after the trace: until then the goroutine would be shown as running.
pub(crate) fn tell_calls() {
    let in_call = |goroutine: &Goroutine, now| {
        let (state, ticks) = goroutine.call().get(now)?;
        let is_it =
            goroutine.state().state() == State::Running && clock::are_micros(ticks, states::LONG_MICROS);
        is_it.then(|| (state, now.wrapping_sub(ticks)))
    };
    // The search is done outside of the event, which holds the shared lane that other threads may wait for.
    let now = clock::ticks();
    let found: Vec<_> = goroutine::slots().filter(|goroutine| in_call(goroutine, now).is_some()).collect();
    record_of(found.into_iter(), |writer, goroutine| {
        writer.declare(goroutine);
        writer.make_room(0);
        let now = writer.now();
        if let Some((state, begin)) = in_call(goroutine, now) {
            writer.write(RecordKind::InCall, now, [goroutine.id(), state.number().into(), begin]);
        }
    });
}

/// Records something about each of these goroutines, in the shared lane.
fn record_of<G: 'static>(
    goroutines: impl Iterator<Item = &'static G>,
    record: impl Fn(&mut LaneWriter<'_>, &G),
) {
    let mut goroutines = goroutines.peekable();
    while goroutines.peek().is_some() {
        // Several events instead of one, because other threads need the lane too.
        let recorded = patiently(|patience| {
            RECORDER.with_patient_shared_writer(patience, |writer| {
                for goroutine in goroutines.by_ref().take(AT_ONCE) {
                    writer.make_room(0);
                    record(writer, goroutine);
                }
            })
        });
        if recorded.is_none() {
            // Recording has ended, or another thread keeps the lane.
            return;
        }
    }
}

/// Runs `f` with the drain's patience.
pub(crate) fn patiently<R>(f: impl FnOnce(&Patience<'_>) -> R) -> R {
    let (process, started) = (own_process(), Instant::now());
    let patience = Patience {
        own: kernel_thread::thread_id(),
        is_gone: &|thread_id| !kernel_thread::is_alive(process, thread_id),
        is_over: &|| started.elapsed() > PATIENCE,
    };
    f(&patience)
}
