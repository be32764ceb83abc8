//! The threads that are sampled, as the collector knows them: it finds those that are new and those that have ended.

use std::collections::{HashMap, HashSet};

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::kernel_thread;
use rtprof_runtime::kernel_thread::thread_id as kernel_thread_id;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::proc::{self, NoStatus, Status};
use rtprof_runtime::stack::marker;

use super::attach::{Attacher, Since};
use super::cpu_time;
use super::perf::PerfEvent;
use super::samples::{CpuKey, Samples};
use super::signal::Signal;
use super::task_names::TaskName;
use super::thread::{Armed, CpuThread};

/// Looks at a thread that blocks the signal, before it is taken for one that does so for good.
const YOUTH: u32 = 10;

/// How many threads were signalled in which way.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) perf: usize,
    pub(super) timers: usize,
    /// Neither.
    pub(super) silent: usize,
    /// Those of the silent that do not block the signal.
    pub(super) refused: usize,
}

impl Tally {
    pub(super) fn all(self) -> usize {
        self.perf + self.timers + self.silent
    }
}

pub(super) struct Threads {
    by_thread: bool,
    /// `None` if the program has taken all.
    signal: Option<Signal>,
    /// Events of threads that live on: their handlers may be about to use them. Closed when no handler is at work.
    closing: Vec<PerfEvent>,
    /// And their slots, for the same reason.
    retired: Vec<&'static CpuThread>,
    found: HashMap<u32, &'static CpuThread>,
    /// Silent ones that were found lately, and how often they were looked at: the C library blocks all signals while a
    /// thread is made.
    young: Vec<(u32, u32)>,
    /// Whether those that were there at the beginning were found.
    has_looked: bool,
    pub(super) tally: Tally,
    /// Names of threads, of their numbers.
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

    /// Finds those that are new and those that have ended. Returns whether there were such.
    pub(super) fn look(&mut self, attacher: &Attacher, samples: &Samples) -> bool {
        // At first none may be left out, for it would seem to be born later.
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
        let mut has_changed = self.found.len() != before;
        if self.found.len() > listed.len() || has_changed {
            let listed: HashSet<u32> = listed.into_iter().collect();
            // A listing may lack some that are there.
            let is_gone = |id: &u32| !listed.contains(id) && !kernel_thread::is_alive(own_process(), *id);
            let gone: Vec<u32> = self.found.keys().copied().filter(is_gone).collect();
            has_changed |= !gone.is_empty();
            gone.into_iter().for_each(|id| self.end(id, attacher, samples));
        }
        has_changed
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
            // Threads of ours block it for good.
            if slot.is_silent() && !labels::is_own(labels_of(id)) {
                self.young.push((id, 0));
            }
        }
    }

    /// Looks at silent threads that were found lately, every 10 ms as long as there are any.
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

    /// Whether there are any.
    pub(super) fn has_young(&self) -> bool {
        !self.young.is_empty()
    }

    /// Ends the sampling of a thread, and counts what of its time has no samples.
    fn end(&mut self, id: u32, attacher: &Attacher, samples: &Samples) {
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
            // One that is due this moment may be on its way.
            let least = if is_silent { 1 } else { 2 };
            let missed = slot.settle(now, attacher.period(), least);
            is_counted = missed > 0;
            if is_counted {
                self.count(id, samples, is_silent && !slot.is_refused(), missed);
            }
        }
        // Only of those that the profile will name: thousands may have come and gone without a sample.
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

    /// Periods of a thread that have no samples, because it blocks the signal or for other reasons.
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

    /// Sees to threads that have used more than they were signalled for. Returns whether there were such that run.
    pub(super) fn hurry(&self, attacher: &Attacher) -> bool {
        let late = |slot: &&&'static CpuThread| !slot.is_silent() && slot.hurry(attacher);
        self.found.values().filter(late).count() > 0
    }

    /// Attaches threads anew that do not block the signal any more; and all, to another signal, if the program has taken
    /// this one.
    pub(super) fn look_again(&mut self, attacher: &Attacher, samples: &Samples) {
        let again: Vec<u32> = match &self.signal {
            Some(signal) if signal.is_ours() => {
                let own = kernel_thread_id();
                let is_ready = |id: u32| Status::of(id).is_ok_and(|status| !signal.is_in(status.blocked));
                let is_young = |id: u32| self.young.iter().any(|(young, _)| *young == id);
                let silent = self.found.iter().filter(|(id, slot)| **id != own && slot.is_silent());
                silent.map(|(id, _)| *id).filter(|id| !is_young(*id) && is_ready(*id)).collect()
            }
            Some(_) => {
                // What is there is the program's.
                self.signal = None;
                attacher.set_signal(0);
                self.adopt();
                let all: Vec<u32> = self.found.keys().copied().collect();
                let tally = self.tally;
                // Before there is another: who sees that gets none of the old ones any more.
                all.iter().for_each(|id| self.end(*id, attacher, samples));
                self.tally = tally;
                self.signal = Signal::take();
                attacher.set_signal(self.signal.as_ref().map_or(0, Signal::number));
                all
            }
            None => return,
        };
        let tally = self.tally;
        for id in again {
            self.end(id, attacher, samples);
            self.begin(id, attacher, Since::Now);
        }
        // They are the same threads.
        self.tally = tally;
    }

    /// Ends the sampling of all.
    pub(super) fn finish(&mut self, attacher: &Attacher, samples: &Samples) {
        attacher.set_signal(0);
        self.adopt();
        let all: Vec<u32> = self.found.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id, attacher, samples));
    }

    /// A handler may be at work for ever, and use one of them: their descriptors stay open, or they could be another file's by then.
    pub(super) fn leak_events(&mut self) {
        self.closing.drain(..).for_each(|event| _ = event.into_raw());
        self.retired.clear();
    }

    /// Closes what is left, and what the program had for the signal comes back. When no handler is at work, nor will be.
    pub(super) fn close(&mut self) {
        self.closing.clear();
        self.retired.drain(..).for_each(CpuThread::give_back);
        self.signal = None;
    }

    /// Whether the program has handlers for all signals that could serve.
    pub(super) fn has_lost_its_signal(&self) -> bool {
        self.signal.is_none()
    }
}

/// Ends what threads have attached themselves that were not to be any more. When none can do so.
pub(super) fn sweep() {
    for slot in CpuThread::all() {
        drop(slot.disarm());
        slot.end();
    }
}

fn goroutine_of(id: u32) -> Option<&'static Goroutine> {
    goroutine::known_threads().find(|&(thread, _)| thread == id).map(|(_, goroutine)| goroutine)
}

/// The labels of a thread, as far as the profiler knows it.
fn labels_of(id: u32) -> LabelSetId {
    goroutine_of(id).map_or(LabelSetId::NONE, Goroutine::labels)
}

/// The name that a thread was given: all of it if it is one that the profiler knows, else what the kernel keeps.
fn name_of(id: u32, slot: &CpuThread) -> String {
    let given = goroutine_of(id).map(Goroutine::name).filter(|name| !name.is_empty());
    given.or_else(|| Some(Status::of(id).ok()?.name())).unwrap_or_else(|| slot.name.get())
}

/// Where /proc cannot be read, those that the profiler knows.
fn registered() -> Vec<u32> {
    let mut threads: Vec<u32> = goroutine::known_threads().map(|(id, _)| id).collect();
    if threads.is_empty() {
        threads.push(kernel_thread_id());
    }
    threads
}
