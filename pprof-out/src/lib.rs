//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! The output formats of rtprof's profiles: profile.proto and text.
//!
//! [`lookup`] finds a profile by name, [`Profile::write_to`] writes it in a form that `go tool pprof` reads,
//! [`write_heap_profile`] is a short cut for the heap profile, and [`heap_top`] returns a table for those without
//! pprof. [`Profile::snapshot`] keeps the records of an instant, to be written in several forms, or compared with those
//! of another instant.
//!
//! An export works on a cut of the records and stops no thread. Its steps:
//!
//! 1. `Locations` resolves each distinct address once, through the `Symbolizer`: function, file and line, inlined
//!    functions included. Debug information is opened for the export and dropped with it; results are cached, so that
//!    later exports open nothing. Files are read and never mapped, so a file that is truncated or rewritten at the same
//!    time costs names but does not end the program; names are discarded if their file was written to while it was
//!    read.
//! 2. `prune` finds where the program's code begins beneath the frames of the allocator, or of the locks, channels and
//!    threads (`hook_names`).
//! 3. `scale` makes an estimate of each sampled value of the heap profile. The block and mutex profiles are scaled
//!    where they are recorded; `contention` converts their ticks to nanoseconds.
//! 4. `Encoder` or a text form writes sample by sample into a `Sink`, which passes them to the caller's writer. Memory
//!    grows with records (about 140 bytes each) and distinct addresses, not with samples or the size of the profile.
//!
//! # What it costs
//! 10,000 records of 30 frames take a few milliseconds once their symbols are known. The first export reads debug
//! information: tens of milliseconds, and tens of megabytes until it ends, for a large program.
//!
//! # What you see
//! - A program with debug information, `debug = "line-tables-only"` included: functions, inlined ones too, files and
//!   lines. With line tables only, names of inlined functions have no types.
//! - With `debug = 0`: functions, but no inlined ones.
//! - Stripped: addresses. A reader that is given an unstripped copy, as in `go tool pprof BINARY PROFILE`, supplies the
//!   rest; the build id shows whether the copy is the right one. `go tool pprof` of Go 1.27 reads only the last segment
//!   of each function's name and ignores inlined functions, so a program that keeps its symbol table gives far better
//!   profiles.
//! - With split debug information: everything, if the `.dwp` lies beside the binary.

#![forbid(unsafe_code)]

mod built_in;
mod call_tree;
mod called_wait;
mod collapsed;
mod contention;
mod counts;
mod cpu;
mod cpu_profile;
#[cfg(test)]
mod decoded;
mod description;
mod encode;
mod error;
mod functions;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod goroutine_dump;
mod goroutine_filter;
mod goroutine_groups;
mod goroutine_state;
mod goroutines;
mod heap;
mod heap_values;
mod incomplete;
mod kind;
mod location_ids;
mod mapped_pages;
mod name_search;
mod profile;
mod profile_time;
mod proto;
mod proto_form;
mod record;
mod registry;
mod scale;
mod since;
mod sink;
mod snapshot;
mod strings;
mod symbolize;
mod text;
mod text_form;
mod top;
mod top_form;

pub use built_in::{BuiltIn, CPU, looked_up, scraped_deltas};
pub use call_tree::{CallTree, Node};
pub use cpu_profile::{
    CpuCapture, CpuProfileOptions, CpuProfileStats, start_cpu_profile, start_cpu_profile_with,
    stop_cpu_profile,
};
pub use error::ProfileError;
pub use goroutine_dump::stack;
pub use goroutine_filter::GoroutineFilter;
pub use profile::{Profile, write_heap_profile};
pub use registry::{lookup, profiles};
pub use rtprof_profiler::cpu::{CpuProfileError, CpuSource, SampledBy};
pub use rtprof_symbols::function_names::{find_function_names, function_names};
pub use rtprof_symbols::symbolizer::{NameSearch, Symbolization};
pub use since::Since;
pub use snapshot::Snapshot;
pub use symbolize::symbolize;
pub use top::{ContentionTopEntry, TopEntry, block_top, heap_top, mutex_top};
