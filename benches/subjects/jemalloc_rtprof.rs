//! rtprof over jemalloc, compiled without jemalloc's own profiler.

rtprof_benches::profiled_by_rtprof!(tikv_jemallocator::Jemalloc, tikv_jemallocator::Jemalloc);
