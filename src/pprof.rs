//! Writing profiles that `go tool pprof` reads, and labels for what they count. Go: package
//! `runtime/pprof`.

pub use rtprof_pprof_out::*;
pub use rtprof_runtime::labels::{LabelGuard, LabelSet, do_with, for_labels, label, labels, set_labels};
