//! The records of a profile at one instant, and all forms in which they are written.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use rtprof_profiler::{BlockKinds, contention};
use rtprof_runtime::snapshot::Recorded;
use rtprof_runtime::{hook, room};
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbolizer::{NameSearch, SearchPriority, Symbolization};
use rtprof_symbols::view::View;

use crate::built_in::BLOCK;
use crate::call_tree::CallTree;
use crate::goroutine_dump::GoroutineFilter;
use crate::kind::ProfileKind;
use crate::record::{Detail, Record};
use crate::sink::Sink;
use crate::taken::Taken;
use crate::{collapsed, goroutine_dump, goroutine_groups, incomplete, proto_form, text_form, top_form};

/// What an export allocates at one time, at most, without its records: names and the output.
pub(crate) const SMALL_EXPORT: usize = 4 << 20;
/// What it allocates for a record.
const OF_A_RECORD: usize = 2 << 10;

/// The records of a profile at one instant ([`Profile::snapshot`](crate::Profile::snapshot)), the records added between
/// two instants ([`since`](Self::since)), or a CPU profile ([`CpuCapture`](crate::CpuCapture)). Addresses are resolved
/// only when a snapshot is written.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) kind: ProfileKind,
    /// In the order in which they are written.
    pub(crate) records: Arc<Vec<Record>>,
    pub(crate) comments: Vec<String>,
    pub(crate) taken: Taken,
    pub(crate) instant: Instant,
    /// For a goroutine profile: each goroutine by itself.
    pub(crate) goroutines: Option<Arc<[Recorded]>>,
    /// See [`Snapshot::with_goroutines`].
    pub(crate) filter: Option<GoroutineFilter>,
    /// See [`Snapshot::with_startup_frames`].
    pub(crate) startup_frames: bool,
    /// See [`Snapshot::from_program`].
    pub(crate) from_program: bool,
}

impl Snapshot {
    /// A snapshot of records that were taken now.
    pub(crate) fn new(kind: ProfileKind, records: Vec<Record>, comments: Vec<String>) -> Self {
        let of_records = incomplete::remarks(&kind, &records);
        Self {
            kind,
            records: Arc::new(records),
            comments: comments.into_iter().chain(of_records).collect(),
            taken: Taken::now(),
            instant: Instant::now(),
            goroutines: None,
            filter: None,
            startup_frames: false,
            from_program: false,
        }
    }

    /// Returns the profile's name.
    pub fn name(&self) -> &str {
        self.kind.name()
    }

    /// Returns name and unit of each value, in order; for instance `("inuse_space", "bytes")`.
    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        self.kind.sample_types()
    }

    /// Returns remarks for the reader: why the profile may be empty, what was dropped.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    /// Returns when the snapshot was taken (for a CPU profile, when it began), in nanoseconds since 1970, and the
    /// duration over which its values were counted, in nanoseconds, 0 for a state at one moment.
    pub fn time_and_duration_nanos(&self) -> (i64, i64) {
        (self.taken.time_nanos, self.taken.duration_nanos)
    }

    /// Writes the snapshot as [`Profile::write_to`](crate::Profile::write_to) does.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
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
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_proto(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        proto_form::write(self, self.view(symbolization), &mut Sink::new(&mut w))
    }

    /// Writes Go's text form, for people. `go tool pprof` reads it as well, but it does not contain the duration of a
    /// delta profile.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_text(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        text_form::write(self, self.view(symbolization), &mut Sink::new(&mut w))
    }

    /// Writes each goroutine by itself, in the form that a Go program prints when it panics; other profiles as
    /// [`write_text`](Self::write_text) does. Go: `debug=2`.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_dump(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        match &self.goroutines {
            Some(each) => {
                let view = self.view(symbolization);
                goroutine_dump::write(
                    each,
                    &self.comments,
                    view,
                    self.filter.as_ref(),
                    &mut Sink::new(&mut w),
                )
            }
            None => self.write_text(w, symbolization),
        }
    }

    /// Writes goroutines with equal stacks as one, for people: first tasks whose thread waits, then the other tasks and the
    /// threads, the most frequent stack first. Other profiles are written as [`write_text`](Self::write_text) does.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_groups(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        match &self.goroutines {
            Some(each) => {
                let view = self.view(symbolization);
                goroutine_groups::write(
                    each,
                    &self.comments,
                    view,
                    self.filter.as_ref(),
                    &mut Sink::new(&mut w),
                )
            }
            None => self.write_text(w, symbolization),
        }
    }

    /// Leaves the other goroutines out of [`write_dump`](Self::write_dump) and [`write_groups`](Self::write_groups).
    #[must_use]
    pub fn with_goroutines(self, filter: GoroutineFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Writes collapsed stacks, the form that flame graph tools read: a line for each stack, its functions from the
    /// outermost to the leaf with semicolons between, a space, and the value. `sample_type` is an index in
    /// [`sample_types`](Self::sample_types). Stacks without that value are left out.
    ///
    /// # Errors
    /// Those of the writer; if there is no such sample type; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the
    /// address space leaves too little.
    pub fn write_collapsed(
        &self,
        mut w: impl Write,
        sample_type: usize,
        symbolization: Symbolization,
    ) -> io::Result<()> {
        self.check_sample_type(sample_type)?;
        self.check_room()?;
        collapsed::write(self, sample_type, self.view(symbolization), &mut Sink::new(&mut w))
    }

    /// Writes a table of functions for people: the first lines of `go tool pprof -top`, each with the source line that has
    /// most of the function's value, and the snapshot's comments. `sample_type` is an index in
    /// [`sample_types`](Self::sample_types).
    ///
    /// # Errors
    /// As of [`write_collapsed`](Self::write_collapsed).
    pub fn write_top(
        &self,
        mut w: impl Write,
        sample_type: usize,
        symbolization: Symbolization,
    ) -> io::Result<()> {
        self.check_sample_type(sample_type)?;
        self.check_room()?;
        top_form::write(self, sample_type, self.view(symbolization), &mut Sink::new(&mut w))
    }

    fn check_sample_type(&self, sample_type: usize) -> io::Result<()> {
        if sample_type < self.sample_types().len() {
            return Ok(());
        }
        let message = format!("{} has no sample type {sample_type}", self.name());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Returns all stacks as one tree from the outermost function on, for a flame graph.
    pub fn call_tree(&self, symbolization: Symbolization) -> CallTree {
        let _workspace = hook::workspace();
        CallTree::of(self, self.view(symbolization))
    }

    /// Starts a search for the names of all functions on a low-priority thread, and calls `at_end` when the search has
    /// ended: at once, if all names are known. Afterwards the snapshot has the names when it is written as
    /// [`Known`](Symbolization::Known).
    ///
    /// This is for a caller that has no thread to wait with, or waits for a limited time, such as a server. `at_end`
    /// must be short, because the thread continues with the next search after it. If the search is dropped before its
    /// end, `at_end` may not be called. Where no thread can be started the names are found before this returns.
    pub fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        self.search(SearchPriority::Low, Box::new(at_end))
    }

    /// Starts a search as [`find_names`](Self::find_names) does, on a thread of the priority of the program's threads: for
    /// a caller that cannot wait until a busy program leaves a core unused.
    pub fn find_names_urgently(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        self.search(SearchPriority::Program, Box::new(at_end))
    }

    fn search(&self, priority: SearchPriority, at_end: Box<dyn FnOnce() + Send>) -> NameSearch {
        let _workspace = hook::workspace();
        let view = self.view(Symbolization::Known);
        let locations = match &self.goroutines {
            Some(each) => goroutine_dump::locations(each, view),
            None => self.locations(view),
        };
        locations.search(priority, at_end)
    }

    /// Also shows the frames that std runs between the beginning of a thread and the program's first function, which
    /// are hidden otherwise: `catch_unwind`, `__rust_begin_short_backtrace` and the like.
    #[must_use]
    pub fn with_startup_frames(self) -> Self {
        Self { startup_frames: true, ..self }
    }

    /// Keeps only the waits of these kinds, in a snapshot of the block profile; others stay as they are. If the profile does
    /// not record one of them ([`set_block_profile_kinds`](contention::set_block_profile_kinds)), a comment says so.
    #[must_use]
    pub fn with_kinds(mut self, kinds: BlockKinds) -> Self {
        let is_of = |record: &Record| match record.detail {
            Detail::Waits(of_record) => of_record.intersects(kinds),
            _ => true,
        };
        let _workspace = hook::workspace();
        self.records = Arc::new(self.records.iter().filter(|record| is_of(record)).cloned().collect());
        let missing = kinds - contention::block_profile_kinds();
        if self.kind.built_in() == Some(&BLOCK) && !missing.is_empty() {
            let missing: Vec<_> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            self.comments.push(format!(
                "rtprof: waits of the kinds {} are not recorded; set_block_profile_kinds adds them",
                missing.join(" and ")
            ));
        }
        self
    }

    /// Begins each stack at the program's own code: the functions of libraries that it calls are hidden, so that a wait for
    /// an async lock stands at the line that awaits it. Stacks without any code of the program, such as those of a pool's
    /// idle threads, are left out, and a comment counts them. Dependencies are recognized by where Cargo puts their source
    /// files, so the program needs debug information; else only the standard library is hidden. In
    /// [`write_dump`](Self::write_dump) and [`write_groups`](Self::write_groups) a stack without code of the program is empty.
    #[must_use]
    pub fn from_program(self) -> Self {
        Self { from_program: true, ..self }
    }

    /// Checks that the process has memory for writing this.
    ///
    /// # Errors
    /// A limit of the address space leaves too little.
    pub(crate) fn check_room(&self) -> io::Result<()> {
        room::check_for_work(SMALL_EXPORT + self.records.len() * OF_A_RECORD)
    }

    fn view(&self, symbolization: Symbolization) -> View {
        View { symbolization, startup_frames: self.startup_frames, from_program: self.from_program }
    }

    /// Returns locations with the addresses of all stacks prepared.
    pub(crate) fn locations(&self, view: View) -> Locations {
        let mut locations = Locations::new(view);
        locations.prepare(self.records.iter().flat_map(Record::stacks));
        if self.from_program
            && let Some(remark) = self.without_program(&mut locations)
        {
            locations.set_without_program(remark);
        }
        locations
    }

    /// Returns a remark on the stacks without code of the program, if there are any: how many, and how much they have.
    fn without_program(&self, locations: &mut Locations) -> Option<String> {
        let (types, shown) = (self.sample_types(), self.kind.shown_first());
        let (mut stacks, mut left_out, mut all) = (0, 0.0, 0.0);
        for record in self.records.iter() {
            if !record.may_belong(locations) {
                continue;
            }
            let value = self.kind.values(record)[shown].unsigned_abs() as f64;
            all += value;
            if record.frames(locations).is_empty() {
                (stacks, left_out) = (stacks + 1, left_out + value);
            }
        }
        let share = if all > 0.0 { 100.0 * left_out / all } else { 0.0 };
        (stacks > 0).then(|| {
            let (plural, are) = if stacks == 1 { ("", "is") } else { ("s", "are") };
            format!(
                "rtprof: {stacks} stack{plural} without code of the program {are} left out, with {share:.1} % of {}",
                types[shown].0
            )
        })
    }

    /// Calls `see` with every stack and its values in the order of the sample types; stops at the first error. Returns
    /// remarks for the reader on addresses without names.
    pub(crate) fn for_each<E>(
        &self,
        view: View,
        mut see: impl FnMut(&Frames<'_>, &[i64]) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        let mut locations = self.locations(view);
        for record in self.records.iter() {
            if !record.is_shown(&mut locations) {
                continue;
            }
            see(&record.frames(&mut locations), &self.kind.values(record))?;
        }
        Ok(locations.comments(&[]))
    }
}
