//! Writing profiles that `go tool pprof` reads, and labels for the samples. Go: package `runtime/pprof`.

pub use rtprof_pprof_out::{
    CallTree, ContentionTopEntry, CpuCapture, CpuProfileError, CpuProfileOptions, CpuProfileStats, CpuSource,
    GoroutineFilter, NameSearch, Node, Profile, ProfileError, SampledBy, Since, Snapshot, Symbolization,
    TopEntry, block_top, find_function_names, function_names, heap_top, lookup, mutex_top, profiles,
    start_cpu_profile, start_cpu_profile_with, stop_cpu_profile, symbolize, write_heap_profile,
};
pub use rtprof_runtime::labels::{LabelGuard, LabelSet, do_with, for_labels, label, labels, set_labels};
