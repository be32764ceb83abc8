//! The sampler thread's list of sampled threads: it finds new threads and ended ones.

use std::collections::{HashMap, HashSet};

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::process::proc::{self, NoStatus, Status};
use rtprof_runtime::stack::marker;
use rtprof_runtime::thread::kernel_thread;
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

use super::attach::{Attacher, Since};
use super::cpu_time;
use super::perf::PerfEvent;
use super::signal::Signal;
use super::thread::{Armed, CpuThread};
use crate::cpu::samples::{CpuKey, Samples};
use crate::cpu::task_names::TaskName;

/// The number of checks on a thread that blocks the signal, before it is taken to block the signal permanently.
const YOUTH: u32 = 10;

/// The number of threads signalled in each way.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) perf: usize,
    pub(super) timers: usize,
    /// Threads with neither.
    pub(super) silent: usize,
    /// The silent threads that do not block the signal.
    pub(super) refused: usize,
}

impl Tally {
    pub(super) fn all(self) -> usize {
        self.perf + self.timers + self.silent
    }
}

pub(super) struct Threads {
    by_thread: bool,
    /// `None` if the program has handlers for all candidates.
    signal: Option<Signal>,
    /// Events of threads that are still alive: their handlers may be about to use them. Closed when no handler is
    /// running.
    closing: Vec<PerfEvent>,
    /// Their slots, kept for the same reason.
    retired: Vec<&'static CpuThread>,
    found: HashMap<u32, &'static CpuThread>,
    /// Silent threads that were found lately, with the number of checks: the C library blocks all signals while a
    /// thread is made.
    young: Vec<(u32, u32)>,
    /// Whether the threads present at the beginning were listed.
    has_looked: bool,
    pub(super) tally: Tally,
    /// Names of threads, by their ids.
    pub(super) names: HashMap<u32, String>,
}

impl Threads {
    pub(super) fn new(by_thread: bool, signal: Signal) -> Self {
        Self {
            by_thread,
            signal: Some(signal),
            closing: Vec::new(),
            retired: Vec::new(),
            found: HashMap::new(),
            young: Vec::new(),
            has_looked: false,
            tally: Tally::default(),
            names: HashMap::new(),
        }
    }

    /// Finds new threads and ended ones. Returns whether there were any.
    pub(super) fn look(&mut self, attacher: &Attacher, samples: &Samples) -> bool {
        // The first listing must be complete, because a missing thread would seem to be born later.
        let listed = if self.has_looked { proc::listing() } else { proc::threads() };
        let is_listed = listed.is_some();
        let listed = listed.unwrap_or_else(registered);
        let before = self.found.len();
        self.adopt();
        let since = if self.has_looked { Since::Birth } else { Since::Now };
        for &id in &listed {
            if !self.found.contains_key(&id) {
                self.begin(id, attacher, since);
            }
        }
        self.has_looked |= is_listed;
        self.settle_silent(attacher, samples);
        let mut has_changed = self.found.len() != before;
        if self.found.len() > listed.len() || has_changed {
            let listed: HashSet<u32> = listed.into_iter().collect();
            // A listing may lack some threads that exist.
            let is_gone = |id: &u32| !listed.contains(id) && !kernel_thread::is_alive(own_process(), *id);
            let gone: Vec<u32> = self.found.keys().copied().filter(is_gone).collect();
            has_changed |= !gone.is_empty();
            gone.into_iter().for_each(|id| self.end(id, attacher, samples));
        }
        has_changed
    }

    /// Counts what silent threads have used: a thread that ends before the next look takes with it what was not counted. The
    /// time of those that were found lately belongs to their first sample.
    fn settle_silent(&mut self, attacher: &Attacher, samples: &Samples) {
        let Self { young, found, by_thread, names, .. } = self;
        let is_young = |id: u32| young.iter().any(|(young, _)| *young == id);
        let silent = found.iter().filter(|(id, slot)| slot.is_silent() && !is_young(**id));
        let missed = silent.filter_map(|(&id, slot)| {
            let missed = slot.account.settle(cpu_time::of_thread(id)?, attacher.period());
            (missed > 0).then_some((id, *slot, missed))
        });
        let missed: Vec<_> = missed.collect();
        if *by_thread {
            names.extend(missed.iter().map(|&(id, slot, _)| (id, name_of(id, slot))));
        }
        for (id, slot, missed) in missed {
            self.count(id, samples, !slot.is_refused(), missed);
        }
    }

    /// Takes over threads that have attached themselves.
    fn adopt(&mut self) {
        self.found.extend(CpuThread::all().map(|slot| (slot.id(), slot)).filter(|(id, _)| *id != 0));
    }

    fn begin(&mut self, id: u32, attacher: &Attacher, since: Since) {
        let blocked = match Status::of(id) {
            Ok(status) => status.blocked,
            Err(NoStatus::Gone) => return,
            Err(NoStatus::Unreadable) => 0,
        };
        if let Some(slot) = attacher.attach(id, blocked, since) {
            self.found.insert(id, slot);
            // rtprof's threads block the signal permanently.
            if slot.is_silent() && !labels::is_own(labels_of(id)) {
                self.young.push((id, 0));
            }
        }
    }

    /// Checks silent threads that were found lately, every 10 ms as long as there are any.
    pub(super) fn look_at_young(&mut self, attacher: &Attacher) {
        let Self { young, found, .. } = self;
        young.retain_mut(|(id, looks)| {
            let Some(slot) = found.get(id).filter(|slot| slot.is_silent()) else { return false };
            *looks += 1;
            if let Ok(status) = Status::of(*id) {
                attacher.arm_silent(slot, status.blocked);
            }
            slot.is_silent() && *looks < YOUTH
        });
    }

    /// Returns whether there are silent threads that were found lately.
    pub(super) fn has_young(&self) -> bool {
        !self.young.is_empty()
    }

    /// Ends the sampling of a thread, and counts the part of its time that has no samples.
    fn end(&mut self, id: u32, attacher: &Attacher, samples: &Samples) {
        self.end_as(id, false, attacher, samples);
    }

    /// As [`end`](Self::end), of a thread that `blocks` the signal although it is not silent.
    fn end_as(&mut self, id: u32, blocks: bool, attacher: &Attacher, samples: &Samples) {
        let Some(slot) = self.found.remove(&id) else { return };
        let armed = slot.disarm();
        let count = match armed {
            Armed::Event(_) => &mut self.tally.perf,
            Armed::Timer(_) => &mut self.tally.timers,
            Armed::Not => &mut self.tally.silent,
        };
        *count += 1;
        self.tally.refused += usize::from(slot.is_refused());
        if matches!(armed, Armed::Event(_)) {
            attacher.closed_event();
        }
        let is_silent = matches!(armed, Armed::Not);
        let event = armed.disabled();
        let used = cpu_time::of_thread(id);
        let mut is_counted = false;
        if let Some(now) = used {
            self.closing.extend(event);
            let period = attacher.period();
            let missed = match is_silent {
                true => slot.account.settle(now, period),
                false => slot.account.settle_overdue(now, period),
            };
            is_counted = missed > 0;
            if is_counted {
                self.count(id, samples, blocks || is_silent && !slot.is_refused(), missed);
            }
        }
        // Only for threads that the profile will name: thousands may have come and gone without a sample.
        let has_samples = !slot.name.get().is_empty() || is_counted;
        if self.by_thread && has_samples {
            self.names.insert(id, name_of(id, slot));
        }
        slot.retire();
        match used {
            Some(_) => self.retired.push(slot),
            None => slot.give_back(),
        }
    }

    /// Counts periods of a thread that have no samples, because it blocks the signal or for other reasons.
    fn count(&self, id: u32, samples: &Samples, blocks: bool, missed: u64) {
        let thread = if self.by_thread { id } else { 0 };
        let labels = labels_of(id);
        let why = match blocks {
            true if labels::is_own(labels) => marker::rtprof_helper_thread,
            true => marker::thread_blocks_signals,
            false => marker::cpu_time_not_sampled,
        };
        samples.add(CpuKey { labels, thread, task: TaskName::NONE }, &[marker::frame(why)], missed);
    }

    /// Signals threads again that have used more time than they were signalled for. Returns whether any of them run.
    pub(super) fn hurry(&self, attacher: &Attacher) -> bool {
        let late = |slot: &&&'static CpuThread| !slot.is_silent() && slot.hurry(attacher);
        self.found.values().filter(late).count() > 0
    }

    /// Attaches threads again that no longer block the signal, or have begun to; and all threads, with another signal, if the
    /// program has taken this one.
    pub(super) fn look_again(&mut self, attacher: &Attacher, samples: &Samples) {
        let mut blocking = Vec::new();
        let again: Vec<u32> = match &self.signal {
            Some(signal) if signal.is_ours() => {
                signal.wait_for_handlers();
                let own = kernel_thread_id();
                let blocks = |id: u32| Some(signal.is_in(Status::of(id).ok()?.blocked));
                let is_young = |id: u32| self.young.iter().any(|(young, _)| *young == id);
                let mut again = Vec::new();
                for (&id, slot) in self.found.iter().filter(|(id, _)| **id != own) {
                    if slot.is_silent() {
                        again.extend((!is_young(id) && blocks(id) == Some(false)).then_some(id));
                    } else if slot.runs_without_samples() && blocks(id) == Some(true) {
                        blocking.push(id);
                    }
                }
                again
            }
            Some(_) => {
                // The installed handler is the program's.
                self.signal = None;
                attacher.set_signal(0);
                self.adopt();
                let all: Vec<u32> = self.found.keys().copied().collect();
                let tally = self.tally;
                // Before another signal is set: a thread that receives the new signal receives none of the old ones any
                // more.
                all.iter().for_each(|id| self.end(*id, attacher, samples));
                self.tally = tally;
                self.signal = Signal::take();
                attacher.set_signal(self.signal.as_ref().map_or(0, Signal::number));
                all
            }
            None => return,
        };
        let tally = self.tally;
        let again = again.into_iter().map(|id| (id, false)).chain(blocking.into_iter().map(|id| (id, true)));
        for (id, blocks) in again {
            self.end_as(id, blocks, attacher, samples);
            self.begin(id, attacher, Since::Now);
        }
        // The same threads were counted before.
        self.tally = tally;
    }

    /// Ends the sampling of all threads.
    pub(super) fn finish(&mut self, attacher: &Attacher, samples: &Samples) {
        attacher.set_signal(0);
        self.adopt();
        let all: Vec<u32> = self.found.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id, attacher, samples));
    }

    /// Leaks the events, because a handler may run for ever and use one of them: a closed descriptor could be another
    /// file's by then.
    pub(super) fn leak_events(&mut self) {
        self.closing.drain(..).for_each(|event| _ = event.into_raw());
        self.retired.clear();
    }

    /// Closes the remaining events, and restores the program's action for the signal. Called when no handler runs or
    /// will run.
    pub(super) fn close(&mut self) {
        self.closing.clear();
        self.retired.drain(..).for_each(CpuThread::give_back);
        self.signal = None;
    }

    /// Returns whether the program has handlers for all usable signals.
    pub(super) fn has_lost_its_signal(&self) -> bool {
        self.signal.is_none()
    }
}

/// Detaches threads that have attached themselves too late. Called when no thread can do so any more.
pub(super) fn sweep() {
    for slot in CpuThread::all() {
        drop(slot.disarm());
        slot.end();
    }
}

fn goroutine_of(id: u32) -> Option<&'static Goroutine> {
    goroutine::known_threads().find(|&(thread, _)| thread == id).map(|(_, goroutine)| goroutine)
}

/// Returns the labels of a thread, as far as the profiler knows it.
fn labels_of(id: u32) -> LabelSetId {
    goroutine_of(id).map_or(LabelSetId::NONE, Goroutine::labels)
}

/// Returns the name of a thread: the full name if the profiler knows the thread, else the kernel's name.
fn name_of(id: u32, slot: &CpuThread) -> String {
    let given = goroutine_of(id).map(Goroutine::name).filter(|name| !name.is_empty());
    given.or_else(|| Some(Status::of(id).ok()?.name())).unwrap_or_else(|| slot.name.get())
}

/// Returns the threads that the profiler knows, for systems where /proc cannot be read.
fn registered() -> Vec<u32> {
    let mut threads: Vec<u32> = goroutine::known_threads().map(|(id, _)| id).collect();
    if threads.is_empty() {
        threads.push(kernel_thread_id());
    }
    threads
}
