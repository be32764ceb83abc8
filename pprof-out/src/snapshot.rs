//! The records of a profile at one instant, and which of them are shown. Each form in which they are written has a file
//! (`proto_form`, `text_form`, `top_form`, `collapsed`, `call_tree`, `goroutine_dump`, `goroutine_groups`).

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use rtprof_profiler::{BlockKinds, contention};
use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::hook;
use rtprof_runtime::hook::room;
use rtprof_runtime::snapshot::Recorded;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::goroutine_filter::GoroutineFilter;
use crate::incomplete;
use crate::kind::ProfileKind;
use crate::profile_time::ProfileTime;
use crate::record::{Detail, Record};

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
    pub(crate) time: ProfileTime,
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
            time: ProfileTime::now(),
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
        (self.time.time_nanos, self.time.duration_nanos)
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

    /// Checks that there is such a sample type.
    pub(crate) fn check_sample_type(&self, sample_type: usize) -> io::Result<()> {
        if sample_type < self.sample_types().len() {
            return Ok(());
        }
        let message = format!("{} has no sample type {sample_type}", self.name());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Keeps only the goroutines of `filter` in [`write_dump`](Self::write_dump) and
    /// [`write_groups`](Self::write_groups).
    #[must_use]
    pub fn with_goroutines(self, filter: GoroutineFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Also shows the frames that std runs between the beginning of a thread and the program's first function, which
    /// are hidden otherwise: `catch_unwind`, `__rust_begin_short_backtrace` and the like.
    #[must_use]
    pub fn with_startup_frames(self) -> Self {
        Self { startup_frames: true, ..self }
    }

    /// Keeps only the waits of these kinds, in a snapshot of the block profile; snapshots of other profiles do not
    /// change. If the profile does not record one of these kinds
    /// ([`set_block_profile_kinds`](contention::set_block_profile_kinds)), a comment says so.
    #[must_use]
    pub fn with_kinds(mut self, kinds: BlockKinds) -> Self {
        let is_of = |record: &Record| match record.detail {
            Detail::Waits(of_record) => of_record.intersects(kinds),
            _ => true,
        };
        let _workspace = hook::workspace();
        self.records = Arc::new(self.records.iter().filter(|record| is_of(record)).cloned().collect());
        let missing = kinds - contention::block_profile_kinds();
        if self.kind.description().is_some_and(|of| of.counted == Some(CountedProfile::Block))
            && !missing.is_empty()
        {
            let missing: Vec<_> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            self.comments.push(format!(
                "rtprof: waits of the kinds {} are not recorded; set_block_profile_kinds adds them",
                missing.join(" and ")
            ));
        }
        self
    }

    /// Begins each stack at the program's own code: the functions of libraries that it calls are hidden, so that a wait
    /// for an async lock is shown at the line that awaits it. Stacks without any code of the program, such as those of
    /// a pool's idle threads, are left out, and a comment counts them. Dependencies are recognized by the place where
    /// Cargo puts their source files, so the program needs debug information; without it only the standard library is
    /// hidden. In [`write_dump`](Self::write_dump) and [`write_groups`](Self::write_groups) a stack without code of the
    /// program is empty.
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

    pub(crate) fn view(&self, symbolization: Symbolization) -> View {
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
