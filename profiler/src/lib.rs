//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! The recorders of rtprof: sampling, the heap profile and its cycles, waits, processor time. They know no format and
//! do no output; the hooks (`rtprof-allocator`, `rtprof-hooks`) feed them, the exporters (`rtprof-pprof-out`) read
//! them.
//!
//! The rules for code in hooks are those of [`rtprof_runtime`].
//!
//! # Reading order
//!
//! | module | contents |
//! |---|---|
//! | [`sampling`], [`rate`] | which allocations are sampled, and the weight of each sample |
//! | [`mem`], [`mem_record`], [`cycle`], [`cut`] | how events become a consistent profile while the program continues |
//! | [`contention`], `governor` | which waits are sampled, at which rate, and what is recorded of them |
//! | [`cpu`] | which code uses the processors |
//! | [`comments`] | a profile's remarks to its reader, besides the counts |

// A loom model uses only a part of the crate.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod block_kinds;
mod block_profile;
mod block_record;
pub mod bucket;
pub mod comments;
pub mod contention;
pub mod cpu;
pub mod cut;
pub mod cycle;
mod goroutine_profile;
mod governor;
pub mod init;
pub mod mem;
mod mem_profile;
pub mod mem_record;
pub mod rate;
pub mod sampling;

pub use block_kinds::BlockKinds;
pub use block_profile::{
    BlockProfileRecord, MAX_THREAD_RECORDS, StackRecord, block_profile, block_profile_into, mutex_profile,
    mutex_profile_into, thread_create_profile, thread_create_profile_into,
};
pub use goroutine_profile::{
    GoroutineRecord, GoroutineState, goroutine_profile, goroutine_profile_into, num_goroutine,
};
pub use mem_profile::{MemProfileRecord, mem_profile, mem_profile_into};
