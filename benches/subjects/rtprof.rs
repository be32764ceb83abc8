//! rtprof over System.

rtprof_benches::profiled_by_rtprof!(std::alloc::System, std::alloc::System);
