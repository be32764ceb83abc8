//! The records of a profile at one instant, in every form that they are written in.

use std::io::{self, Write};
use std::time::Instant;

use rtprof_runtime::hook;

use crate::call_tree::CallTree;
use crate::collapsed;
use crate::contention::{self, ContentionRecords};
use crate::contention_text;
use crate::count_profile::CountProfile;
use crate::cpu::{self, CpuRecords};
use crate::goroutine_dump;
use crate::goroutines::Goroutines;
use crate::heap::{self, HeapRecords};
use crate::heap_text;
use crate::profile::HeapView;
use crate::sink::Sink;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbolizer::{NameSearch, Symbolization};
use rtprof_symbols::view::View;

/// What a profile had at one instant ([`Profile::snapshot`](crate::Profile::snapshot)), what was added between two
/// ([`since`](Self::since)), or a CPU profile ([`CpuCapture`](crate::CpuCapture)). Nothing is resolved yet: that happens whenever it is written.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) records: Records,
    pub(crate) instant: Instant,
    /// See [`Snapshot::with_startup_frames`].
    pub(crate) startup_frames: bool,
}

#[derive(Clone)]
pub(crate) enum Records {
    Heap(HeapView, HeapRecords<'static>),
    Contention(ContentionRecords<'static>),
    Counts(CountProfile<'static>),
    Goroutines(Goroutines),
    Cpu(CpuRecords),
}

impl Snapshot {
    pub(crate) fn of_heap(view: HeapView, records: HeapRecords<'static>) -> Self {
        Self::now(Records::Heap(view, records))
    }

    pub(crate) fn of_contention(records: ContentionRecords<'static>) -> Self {
        Self::now(Records::Contention(records))
    }

    pub(crate) fn of_counts(counts: CountProfile<'static>) -> Self {
        Self::now(Records::Counts(counts))
    }

    pub(crate) fn of_goroutines(goroutines: Goroutines) -> Self {
        Self::now(Records::Goroutines(goroutines))
    }

    pub(crate) fn of_cpu(cpu: CpuRecords) -> Self {
        Self::now(Records::Cpu(cpu))
    }

    fn now(records: Records) -> Self {
        Self { records, instant: Instant::now(), startup_frames: false }
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        match &self.records {
            Records::Heap(view, _) => view.name(),
            Records::Contention(contention) => contention.kind.name(),
            Records::Counts(counts) => &counts.name,
            Records::Goroutines(goroutines) => &goroutines.counts.name,
            Records::Cpu(_) => cpu::NAME,
        }
    }

    /// Name and unit of each value, in order; for instance `("inuse_space", "bytes")`.
    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        match &self.records {
            Records::Heap(..) => heap::SAMPLE_TYPES.to_vec(),
            Records::Contention(_) => contention::SAMPLE_TYPES.to_vec(),
            Records::Counts(counts) => vec![(&counts.name, "count")],
            Records::Goroutines(goroutines) => vec![(goroutines.view.name(), "count")],
            Records::Cpu(_) => cpu::SAMPLE_TYPES.to_vec(),
        }
    }

    /// Remarks for the reader: why the profile may be empty, what was dropped.
    pub fn comments(&self) -> &[String] {
        match &self.records {
            Records::Heap(_, heap) => &heap.comments,
            Records::Contention(contention) => &contention.comments,
            Records::Counts(counts) => &counts.comments,
            Records::Goroutines(goroutines) => &goroutines.counts.comments,
            Records::Cpu(cpu) => &cpu.comments,
        }
    }

    /// When it was taken (a CPU profile, when it began), in nanoseconds since 1970; and over which time it was counted, in nanoseconds, 0 for
    /// a state.
    pub fn time_and_duration_nanos(&self) -> (i64, i64) {
        let taken = match &self.records {
            Records::Heap(_, heap) => heap.taken,
            Records::Contention(contention) => contention.taken,
            Records::Counts(counts) => counts.taken,
            Records::Goroutines(goroutines) => goroutines.counts.taken,
            Records::Cpu(cpu) => cpu.taken,
        };
        (taken.time_nanos, taken.duration_nanos)
    }

    /// Writes it as [`Profile::write_to`](crate::Profile::write_to) does.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, w: impl Write, debug: u32) -> io::Result<()> {
        match debug {
            0 => self.write_proto(w, Symbolization::Full),
            1 => self.write_text(w, Symbolization::Full),
            _ => self.write_dump(w, Symbolization::Full),
        }
    }

    /// Writes gzipped profile.proto.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_proto(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        let mut sink = Sink::new(&mut w);
        let view = self.view(symbolization);
        match &self.records {
            Records::Heap(kind, heap) => heap::write(heap, kind.default_sample_type(), view, &mut sink),
            Records::Contention(contention) => contention::write(contention, view, &mut sink),
            Records::Counts(counts) => counts.write(view, &mut sink),
            Records::Goroutines(goroutines) => goroutines.counts.write(view, &mut sink),
            Records::Cpu(cpu) => cpu::write(cpu, view, &mut sink),
        }
    }

    /// Writes Go's text form, for people; `go tool pprof` reads it as well, but it does not say over which time
    /// something was added.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        let mut sink = Sink::new(&mut w);
        let view = self.view(symbolization);
        match &self.records {
            Records::Heap(_, heap) => heap_text::write(heap, view, &mut sink),
            Records::Contention(contention) => contention_text::write(contention, view, &mut sink),
            Records::Counts(counts) => counts.write_text(view, &mut sink),
            Records::Goroutines(goroutines) => goroutines.counts.write_text(view, &mut sink),
            Records::Cpu(cpu) => cpu::write_text(cpu, view, &mut sink),
        }
    }

    /// Writes each goroutine by itself, in the form in which a Go program that panics prints them; other profiles as
    /// [`write_text`](Self::write_text) does. Go: `debug=2`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_dump(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        match &self.records {
            Records::Goroutines(goroutines) => {
                goroutine_dump::write(goroutines, self.view(symbolization), &mut Sink::new(&mut w))
            }
            _ => self.write_text(w, symbolization),
        }
    }

    /// Writes collapsed stacks, the form that flame graph tools take: a line for each stack, its functions from the
    /// outermost to the leaf with semicolons between, a space, and the value. `sample_type` is a place among
    /// [`sample_types`](Self::sample_types). Stacks without that value are left out.
    ///
    /// # Errors
    /// Those of the writer, and if there is no such sample type.
    pub fn write_collapsed(
        &self,
        mut w: impl Write,
        sample_type: usize,
        symbolization: Symbolization,
    ) -> io::Result<()> {
        if sample_type >= self.sample_types().len() {
            let message = format!("{} has no sample type {sample_type}", self.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        collapsed::write(self, sample_type, self.view(symbolization), &mut Sink::new(&mut w))
    }

    /// All stacks as one tree from the outermost function on, for a flame graph.
    pub fn call_tree(&self, symbolization: Symbolization) -> CallTree {
        let _workspace = hook::workspace();
        CallTree::of(self, self.view(symbolization))
    }

    /// Begins to look for the names of all its functions, by a thread that the program's threads go before, and calls
    /// `at_end` when they are found or cannot be: at once, if all are known. Written as
    /// [`Known`](Symbolization::Known) it has them then.
    ///
    /// For a caller that has no thread to wait with, or waits for a limited time, such as a server. `at_end` must be
    /// short: the thread goes on to the next search after it. If the search is dropped before its end, `at_end` may not be
    /// called. Where no thread is to be had the names are found before this returns.
    pub fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        let at_end: Box<dyn FnOnce() + Send> = Box::new(at_end);
        let _workspace = hook::workspace();
        self.locations(self.view(Symbolization::Known)).search(at_end)
    }

    /// The same with the frames that std runs between the beginning of a thread and the program's first function, which
    /// are hidden otherwise: `catch_unwind`, `__rust_begin_short_backtrace` and the like.
    #[must_use]
    pub fn with_startup_frames(self) -> Self {
        Self { startup_frames: true, ..self }
    }

    fn view(&self, symbolization: Symbolization) -> View {
        View { symbolization, startup_frames: self.startup_frames }
    }

    /// With the addresses of all stacks prepared.
    fn locations(&self, view: View) -> Locations {
        let mut locations = Locations::new(view);
        match &self.records {
            Records::Heap(_, heap) => locations.prepare(heap.stacks()),
            Records::Contention(contention) => locations.prepare(contention.stacks()),
            Records::Counts(counts) => locations.prepare(counts.stacks()),
            Records::Cpu(cpu) => locations.prepare(cpu.stacks()),
            Records::Goroutines(goroutines) => return goroutine_dump::locations(&goroutines.each, view),
        }
        locations
    }

    /// Calls `see` with every stack and its values in the order of the sample types; stops at the first error. Returns
    /// what a reader must know of addresses without names.
    pub(crate) fn for_each<E>(
        &self,
        view: View,
        mut see: impl FnMut(&Frames<'_>, &[i64]) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        let mut locations = self.locations(view);
        match &self.records {
            Records::Heap(_, heap) => heap.records.iter().try_for_each(|record| {
                see(&locations.allocation(record.stack), &record.estimated().in_order())
            }),
            Records::Contention(contention) => {
                contention.shown(&mut locations).into_iter().try_for_each(|record| {
                    let values = [record.count, contention.nanos(record.cycles)];
                    see(&locations.event(record.stack), &values)
                })
            }
            Records::Counts(counts) | Records::Goroutines(Goroutines { counts, .. }) => counts
                .records
                .iter()
                .try_for_each(|record| see(&record.frames(&mut locations), &[record.count])),
            Records::Cpu(cpu) => cpu
                .records
                .iter()
                .try_for_each(|record| see(&locations.skipped(record.captured(), 0), &cpu.values(record))),
        }?;
        Ok(locations.comments(&[]))
    }
}
