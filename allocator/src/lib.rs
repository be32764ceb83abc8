//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! The `GlobalAlloc` wrapper of rtprof: samples allocations, and finds the free of every sampled one.
//!
//! | module | contents |
//! |---|---|
//! | `prof_alloc` | the fast path of every allocation and free |
//! | `sampled` | the slow path of sampled ones |
//! | `placement`, `pool`, `slab`, `large` | where sampled objects are kept, so that their frees are found |
//! | `workspace`, `segments` | memory for the profiler's own work |
//! | [`collector`] | the accounting of programs that free late |
//! | `alloc_free_trace` | every sampled malloc and free, as text |

// Models use only a part of the crate.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod alloc_free_trace;
pub mod collector;
mod init;
mod large;
mod placement;
mod pool;
mod prof_alloc;
mod sampled;
mod segments;
mod slab;
mod span;
mod workspace;

pub use alloc_free_trace::set_alloc_free_trace;
pub use prof_alloc::ProfAlloc;
