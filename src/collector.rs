//! Reports to the profiler from programs that embed a garbage collector or free memory late. Go: the runtime's own
//! collector.

pub use rtprof_allocator::collector::*;
