//! rtprof over mimalloc.

rtprof_benches::profiled_by_rtprof!(mimalloc::MiMalloc, mimalloc::MiMalloc);
