//! The `GlobalAlloc` wrapper of rtprof: samples allocations, and finds the free of every sampled one.
//!
//! Programs use the facade, `rtprof`.
//!
//! | module | what it answers |
//! |---|---|
//! | `prof_alloc` | what every allocation and free pays |
//! | `sampled` | what a sampled one pays beyond |
//! | `placement`, `pool`, `slab`, `large` | where sampled objects are kept, so that their frees are found |
//! | `workspace`, `segments` | where the profiler's own work has its memory from |
//! | [`collector`] | how a program that frees late is accounted for |
//! | `alloc_free_trace` | every sampled malloc and free, as text |

#[cfg(not(loom))]
mod alloc_free_trace;
#[cfg(not(loom))]
pub mod collector;
#[cfg(not(loom))]
mod init;
#[cfg_attr(loom, allow(dead_code))]
mod large;
#[cfg(not(loom))]
mod placement;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod prof_alloc;
#[cfg(not(loom))]
mod sampled;
#[cfg(not(loom))]
mod segments;
#[cfg_attr(loom, allow(dead_code))]
mod slab;
#[cfg(not(loom))]
mod workspace;

#[cfg(not(loom))]
pub use alloc_free_trace::set_alloc_free_trace;
#[cfg(not(loom))]
pub use prof_alloc::ProfAlloc;
