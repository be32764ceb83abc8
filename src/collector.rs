//! For programs that embed a garbage collector or free late. Go: the runtime's own collector.

pub use rtprof_allocator::collector::*;
