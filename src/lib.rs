#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod collector;
#[cfg(feature = "pprof")]
pub mod pprof;

pub use rtprof_allocator::{ProfAlloc, set_alloc_free_trace};
pub use rtprof_profiler::mem::{advance_cycle, flush_cycle, live_heap_estimate, set_max_stacks};
pub use rtprof_profiler::rate::{mem_profile_rate, set_mem_profile_rate};
pub use rtprof_profiler::stack::{StackMode, set_stack_mode, stack_mode};
pub use rtprof_profiler::{MAX_STACK, MemProfileRecord, mem_profile, mem_profile_into};
