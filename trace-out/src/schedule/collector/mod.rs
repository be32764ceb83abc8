//! Shows a collector that the program embeds: collections, stops of the world, sweeps and assists.

mod state;

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::{CollectorRecord, StwReason};

use crate::order::{EventPosition, SHARED};

use super::changes::Schedule;
use super::event::Event;
use super::goroutines::Phase;
use super::procs::{OUTSIDE, Wire};
use super::reason::Reason;
use super::writing::Writing;

pub(crate) use state::CollectorEvent;
pub(super) use state::CollectorState;

impl<W: Wire> Writing<'_, W> {
    /// Converts a record of the collector, at a tick of the file.
    pub(super) fn collector(&mut self, at: EventPosition, tick: u64, record: CollectorRecord) {
        let schedule = &mut *self.schedule;
        match record {
            CollectorRecord::GcStart { stack, .. } => {
                let stack = self.stack(at, stack);
                self.schedule
                    .on_lane(at.lane, tick, |schedule, proc| schedule.start_collection(proc, tick, stack));
            }
            CollectorRecord::GcDone { .. } => {
                schedule.on_lane(at.lane, tick, |schedule, proc| schedule.end_collection(proc, tick))
            }
            CollectorRecord::StwStart { reason, .. } => {
                if self.running(at).is_none() {
                    return;
                }
                let schedule = &mut *self.schedule;
                if let Some(index) = schedule.collector.stop_of {
                    // The end of the other stop was lost.
                    if !W::STOPS_END_ALONE && schedule.goroutines[index].phase != Phase::Running {
                        // No end can be written now.
                        schedule.unmatched.others += 1;
                        return;
                    }
                    schedule.end_stop(tick);
                }
                schedule.start_stop(at.goroutine, tick, reason);
            }
            CollectorRecord::StwDone { .. } => {
                if self.running(at).is_some() {
                    match self.schedule.has_stopped_world(at.goroutine) {
                        true => self.schedule.end_stop(tick),
                        false => self.schedule.unmatched.others += 1,
                    }
                }
            }
            CollectorRecord::SweepStart { stack } => {
                let stack = self.stack(at, stack);
                let Some(proc) = self.running(at) else { return };
                self.schedule.end_sweep(proc, tick);
                self.schedule.put_collector(proc, tick, CollectorEvent::SweepBegin { stack });
                self.schedule.procs[proc].is_sweeping = true;
            }
            CollectorRecord::SweepDone { swept, reclaimed } => {
                let Some(proc) = self.running(at) else { return };
                if !std::mem::take(&mut self.schedule.procs[proc].is_sweeping) {
                    // The sweep was closed when its goroutine stopped running.
                    self.schedule.unmatched.others += 1;
                    return;
                }
                self.schedule.put_collector(proc, tick, CollectorEvent::SweepEnd { swept, reclaimed });
            }
            CollectorRecord::AssistStart { stack } => {
                let stack = self.stack(at, stack);
                let Some(proc) = self.running(at) else { return };
                self.schedule.end_assist(at.goroutine, tick);
                self.schedule.put_collector(proc, tick, CollectorEvent::AssistBegin { stack });
                self.schedule.goroutines[at.goroutine].is_assisting = true;
            }
            CollectorRecord::AssistDone => {
                if self.running(at).is_some() {
                    match self.schedule.goroutines[at.goroutine].is_assisting {
                        true => self.schedule.end_assist(at.goroutine, tick),
                        false => self.schedule.unmatched.others += 1,
                    }
                }
            }
        }
    }
}

impl<W: Wire> Schedule<W> {
    fn put_collector(&mut self, proc: u32, tick: u64, event: CollectorEvent) -> u64 {
        self.procs.put(proc, tick, Event::Collector(event))
    }

    fn start_collection(&mut self, proc: u32, tick: u64, stack: u64) {
        self.end_collection(proc, tick);
        let tick = tick.max(self.collector.collection_tick + 1);
        let begin = CollectorEvent::CollectionBegin { number: self.collector.collections, stack };
        self.collector.collection_tick = self.put_collector(proc, tick, begin);
        self.collector.collections += 1;
        self.collector.has_collection = true;
    }

    fn end_collection(&mut self, proc: u32, tick: u64) {
        if self.collector.has_collection {
            let tick = tick.max(self.collector.collection_tick + 1);
            self.collector.collection_tick = self.put_collector(proc, tick, CollectorEvent::CollectionEnd);
            self.collector.has_collection = false;
        }
    }

    /// Stops the world, on behalf of the goroutine, which runs.
    fn start_stop(&mut self, goroutine: u32, tick: u64, reason: StwReason) {
        let tick = tick.max(self.collector.stop_tick + 1);
        let proc = self.goroutines[goroutine].proc;
        let text = self.text_of(Reason::Stop(reason));
        let begin = CollectorEvent::StopBegin { reason: Reason::Stop(reason), text };
        self.collector.stop_tick = self.put_collector(proc, tick, begin);
        self.collector.stop_of = Some(goroutine);
        self.collector.stop_reason = reason;
    }

    /// Restarts the world. The goroutine that stopped it must run.
    fn end_stop(&mut self, tick: u64) {
        if let Some(index) = self.collector.stop_of.take() {
            let tick = tick.max(self.collector.stop_tick + 1);
            let proc = self.goroutines[index].proc;
            self.collector.stop_tick = self.put_collector(proc, tick, CollectorEvent::StopEnd);
        }
    }

    /// Ends a stop of the world by a goroutine that is about to stop running, if the format shows no longer ones.
    #[inline]
    pub(super) fn leave_stop(&mut self, index: u32, tick: u64) {
        if !W::HAS_LONG_STOPS {
            self.end_stop_of(index, tick);
        }
    }

    pub(super) fn has_stopped_world(&self, index: u32) -> bool {
        self.collector.stop_of == Some(index)
    }

    /// Ends a stop of the world by this goroutine, which runs.
    #[inline]
    pub(super) fn end_stop_of(&mut self, index: u32, tick: u64) {
        if self.has_stopped_world(index) {
            self.end_stop(tick);
        }
    }

    /// Ends a sweep on the P.
    #[inline]
    pub(super) fn end_sweep(&mut self, proc: u32, tick: u64) {
        if self.procs[proc].is_sweeping {
            self.put_collector(proc, tick, CollectorEvent::SweepEnd { swept: 0, reclaimed: 0 });
            self.procs[proc].is_sweeping = false;
        }
    }

    /// Ends the goroutine's assist of the collector.
    pub(super) fn end_assist(&mut self, index: u32, tick: u64) {
        if self.goroutines[index].is_assisting {
            self.put_collector(self.goroutines[index].proc, tick, CollectorEvent::AssistEnd);
            self.goroutines[index].is_assisting = false;
        }
    }

    /// Shows what is open at the beginning of a part, after the states of goroutines.
    pub(super) fn begin_collector_part(&mut self, tick: u64) {
        for proc in self.procs.indices() {
            if self.procs[proc].is_sweeping {
                self.put_collector(proc, tick, CollectorEvent::SweepActive);
            }
        }
        if self.collector.has_collection {
            self.collector.collection_tick =
                self.put_collector(OUTSIDE, tick, CollectorEvent::CollectionActive);
        }
        if let Some(index) = self.collector.interrupted_stop.take() {
            self.start_stop(index, tick, self.collector.stop_reason);
        }
    }

    /// Ends what the next part begins anew.
    pub(super) fn end_collector_part(&mut self, tick: u64) {
        if !W::HAS_LONG_STOPS {
            // A reader that begins with the next part does not know of the stop.
            self.collector.interrupted_stop = self.collector.stop_of;
            self.end_stop(tick);
        }
    }

    /// Ends the stop of the world with the trace.
    pub(super) fn finish_stop(&mut self, tick: u64) {
        if let Some(index) = self.collector.stop_of
            && self.goroutines[index].phase != Phase::Running
        {
            // Only a running goroutine can restart the world.
            self.bring(index, State::Runnable, SHARED, None, tick);
            let (proc, stands_in) = self.idle_proc(None, State::Runnable, tick);
            self.run(index, proc, tick);
            self.end_stop(tick);
            self.pause_for(index, tick, Reason::Yield, 0);
            self.stop_proc(proc, tick);
            self.settle(index, State::Runnable, proc, stands_in, tick);
        }
        self.end_stop(tick);
    }

    /// Ends the collection with the trace.
    pub(super) fn finish_collection(&mut self, tick: u64) {
        self.end_collection(OUTSIDE, tick);
    }
}
