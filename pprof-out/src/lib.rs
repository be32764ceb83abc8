//! The profiles of rtprof as they leave the process: profile.proto and text.
//!
//! [`lookup`] finds a profile by name, [`Profile::write_to`] writes it in a form that `go tool pprof` reads,
//! [`write_heap_profile`] is the short way to the most wanted one, [`heap_top`] a table for those without pprof.
//! [`Profile::snapshot`] keeps the records of an instant, to be written in several forms, or compared with those of
//! another instant.
//!
//! An export works on a cut of the records and stops nobody. Its path:
//!
//! 1. `Locations` resolves each distinct address once, through the `Symbolizer`: function, file and line, inlined
//!    functions included. Debug information is opened for the export and dropped with it; answers are
//!    remembered, so that later exports open nothing. Files are read and never mapped, so a file that is cut or
//!    rewritten meanwhile costs names and does not end the program; names of a file that was written to while it was
//!    read are not used.
//! 2. `prune` finds where the program's code begins beneath the allocator's, or beneath that of the locks,
//!    channels and threads (`hook_names`).
//! 3. `scale` makes an estimate of each sampled value of the heap profile. The block and mutex profiles are scaled
//!    where they are recorded; `contention` makes nanoseconds of their ticks.
//! 4. `Encoder` or a text form writes sample by sample into a `Sink`, which hands it to the caller's writer.
//!    Memory grows with records (about 140 bytes each) and distinct addresses, not with samples or the size of
//!    the profile.
//!
//! # What it costs
//! 10,000 records of 30 frames take a few milliseconds once their symbols are known. The first export reads debug
//! information: tens of milliseconds, and tens of megabytes until it ends, for a large program.
//!
//! # What you see
//! - A program with debug information, `debug = "line-tables-only"` included: functions, inlined ones too, files
//!   and lines. Without types in the names of inlined functions if there are but line tables.
//! - With `debug = 0`: functions, but no inlined ones.
//! - Stripped: addresses. A reader that is given an unstripped copy, as in `go tool pprof BINARY PROFILE`, supplies
//!   the rest; the build id tells it whether the copy is the right one. `go tool pprof` of Go 1.27 reads of each
//!   function only the last segment of its name and ignores inlined ones, so a program that keeps its symbol table
//!   gives far better profiles.
//! - With split debug information: all, if the `.dwp` lies beside the binary.

#![forbid(unsafe_code)]

mod call_tree;
mod collapsed;
mod contention;
mod counts;
mod cpu;
mod cpu_profile;
#[cfg(test)]
mod decoded;
mod encode;
mod error;
mod functions;
#[cfg(test)]
mod go_pprof;
mod goroutine_dump;
mod goroutines;
mod heap;
mod kind;
mod location_ids;
mod mapped_pages;
mod profile;
mod proto;
mod proto_form;
mod record;
mod registry;
mod scale;
mod since;
mod sink;
mod snapshot;
mod strings;
mod taken;
mod text;
mod text_form;
mod top;

pub use call_tree::{CallTree, Node};
pub use cpu_profile::{
    CpuCapture, CpuProfileOptions, CpuProfileStats, start_cpu_profile, start_cpu_profile_with,
    stop_cpu_profile,
};
pub use error::ProfileError;
pub use goroutine_dump::stack;
pub use profile::{Profile, write_heap_profile};
pub use registry::{lookup, profiles};
pub use rtprof_profiler::cpu::{CpuProfileError, CpuSource, SampledBy};
pub use rtprof_symbols::function_names::{find_function_names, function_names};
pub use rtprof_symbols::symbolizer::{NameSearch, Symbolization};
pub use since::Since;
pub use snapshot::Snapshot;
pub use top::{ContentionTopEntry, TopEntry, block_top, heap_top, mutex_top};
