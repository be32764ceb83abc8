//! The parts of a trace in a format whose readers may begin with any of them.

use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::StringId;

use super::changes::Schedule;
use super::event::{Event, Introduction};
use super::goroutines::Phase;
use super::procs::{OUTSIDE, Wire};

/// The name of the goroutine that stands for the threads without one. Go's tools omit it from their lists.
const OUTSIDE_NAME: &str = "runtime.outside";

impl<W: Wire> Schedule<W> {
    /// Begins a part, at a tick of the file: shows the state of everything.
    pub(crate) fn begin_part(&mut self, tick: u64, tables: &dyn Tables) {
        for index in self.goroutines.indices() {
            let goroutine = &self.goroutines[index];
            let proc = match goroutine.phase {
                Phase::Unknown => continue,
                Phase::Running => goroutine.proc,
                Phase::Runnable | Phase::Waiting | Phase::Syscall => OUTSIDE,
            };
            self.state(index, proc, tick, None, tables);
        }
        self.begin_collector_part(tick);
    }

    /// Shows a goroutine that the trace does not know in its state. A running one runs on `proc`, which is idle.
    pub(super) fn appear(
        &mut self,
        index: u32,
        (goroutine, name): (u64, StringId),
        (proc, phase): (u32, Phase),
        tick: u64,
        found: Introduction,
        tables: &dyn Tables,
    ) {
        let appeared = self.goroutines.begin(index, goroutine, name, &mut self.ids);
        (appeared.phase, appeared.proc) = (phase, proc);
        (appeared.created, appeared.tick) = (tick, tick);
        if phase == Phase::Running {
            self.procs[proc].goroutine = index;
        }
        self.state(index, proc, tick, Some(found), tables);
    }

    /// Writes the state of a goroutine. A running one runs on `proc`.
    fn state(&mut self, index: u32, proc: u32, tick: u64, found: Option<Introduction>, tables: &dyn Tables) {
        let goroutine = &self.goroutines[index];
        let (phase, is_assisting) = (goroutine.phase, goroutine.is_assisting);
        let start = self.names.start(goroutine.name, tables);
        self.goroutines[index].start = start.stack;
        let goroutine = &self.goroutines[index];
        let status = Event::Status { index, goroutine: goroutine.id, start, phase, is_assisting, found };
        self.procs.put(proc, tick, status);
    }

    /// Ends a part, at a tick of the file.
    pub(crate) fn end_part(&mut self, tick: u64) {
        self.end_lost_calls(tick);
        self.begin_open_calls();
        self.end_collector_part(tick);
    }

    /// Returns the regions that are open, by their goroutine's id and their names, the innermost of a goroutine last.
    pub(crate) fn open_regions<'t>(&self, tables: &'t dyn Tables) -> Vec<(u64, &'t str)> {
        let mut open = Vec::new();
        for index in self.goroutines.indices() {
            let goroutine = &self.goroutines[index];
            if goroutine.phase != Phase::Unknown {
                open.extend(goroutine.regions.iter().map(|&(_, name)| (goroutine.id, tables.string(name))));
            }
        }
        open
    }

    /// Returns the id of the stack that names the goroutine which stands for the threads without one.
    pub(crate) fn start_outside(&mut self) -> u64 {
        self.names.start_of(OUTSIDE_NAME)
    }
}
