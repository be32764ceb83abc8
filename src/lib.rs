#![doc = include_str!("lib.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod collector;
#[cfg(doctest)]
mod docs;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod trace;
#[cfg(feature = "tracing")]
pub mod tracing;

pub use rtprof_allocator::{ProfAlloc, set_alloc_free_trace};
#[doc(inline)]
pub use rtprof_hooks::{sync, task, thread};
#[cfg(feature = "http")]
pub use rtprof_http::{InitError, init};
#[cfg(feature = "pprof")]
pub use rtprof_pprof_out::stack;
pub use rtprof_profiler::contention::{
    BudgetError, block_profile_kinds, block_profile_rate, clear_profile_budget, profile_budget,
    set_block_profile_kinds, set_block_profile_rate, set_mutex_profile_fraction, set_profile_budget,
};
pub use rtprof_profiler::mem::{advance_cycle, flush_cycle, live_heap_estimate, set_max_stacks};
pub use rtprof_profiler::rate::{mem_profile_rate, set_mem_profile_rate};
pub use rtprof_profiler::{
    BlockKinds, BlockProfileRecord, GoroutineRecord, GoroutineState, MAX_THREAD_RECORDS, MemProfileRecord,
    StackRecord, block_profile, block_profile_into, goroutine_profile, goroutine_profile_into, mem_profile,
    mem_profile_into, mutex_profile, mutex_profile_into, num_goroutine, thread_create_profile,
    thread_create_profile_into,
};
pub use rtprof_runtime::MAX_STACK;
pub use rtprof_runtime::clock::ticks_per_second;
pub use rtprof_runtime::modules::refresh as refresh_modules;
pub use rtprof_runtime::snapshot::{GoroutineKind, KernelState, set_thread_signals, thread_signals};
pub use rtprof_runtime::stack::{StackMode, set_stack_mode, stack_mode};
pub use rtprof_tracer::heap::set_heap_goal;
