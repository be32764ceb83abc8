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

// A model uses a part of this.
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
mod workspace;

pub use alloc_free_trace::set_alloc_free_trace;
pub use prof_alloc::ProfAlloc;
