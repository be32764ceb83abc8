//! The record keepers of rtprof: stacks, the bucket table, heap profile cycles, sampling, labels. They
//! know no format and do no output; the hooks (`rtprof-allocator`) feed them, the exporters
//! (`rtprof-pprof-out`) read them.
//!
//! Programs use the facade, `rtprof`. This crate is for those who write hooks or exporters.
//!
//! # Rules of the hooks
//!
//! What is documented as *for hooks* may run inside `GlobalAlloc`, with any lock of the program held,
//! before `main`, in a dying thread, and in a forked child. It takes no lock, allocates nothing from
//! the program's allocator, initialises nothing lazily, never panics and never unwinds through libgcc.
//! All else takes locks and allocates, and may not be called from such places.
//!
//! # Reading order
//!
//! | module | what it answers |
//! |---|---|
//! | [`sampling`], [`rate`] | which allocations are sampled, and what each stands for |
//! | [`stack`] | where an allocation was made |
//! | [`mem`], [`mem_record`], [`cycle`] | how events become a consistent profile while the program runs on |
//! | [`contention`], [`clock`] | which waits are sampled, and what is recorded of them |
//! | [`thread_create`], [`goroutine`] | who creates threads, which there are, and where |
//! | [`task`] | which async tasks there are, and where they await |
//! | [`cpu`] | who uses the processors |
//! | [`modules`], [`labels`], [`counters`] | what exporters need beside the counts |
//! | [`observer`] | what the execution tracer is told of |
//! | [`listeners`], [`hidden`] | which waits hooks need not look at |
//!
//! # Platforms
//!
//! Linux on x86-64 is tested, on aarch64 it builds. Elsewhere everything compiles and records nothing.

pub mod arena;
mod block_kinds;
mod block_profile;
mod block_record;
pub(crate) mod boundary;
pub mod bucket;
pub mod clock;
pub mod contention;
pub mod counters;
pub mod cpu;
pub mod cut;
pub mod cycle;
#[cfg(all(rtprof_supported, not(loom)))]
mod disposition;
pub mod fork_lock;
pub mod fork_safe;
pub mod goroutine;
mod goroutine_profile;
#[cfg(not(loom))]
pub mod helper_thread;
pub mod hidden;
pub mod init;
pub mod labels;
pub mod listeners;
pub mod mapping;
pub mod mem;
mod mem_profile;
pub mod mem_record;
pub mod modules;
#[cfg(not(loom))]
pub mod nap;
pub mod observer;
pub mod own_files;
pub mod primitive;
#[cfg(not(loom))]
pub mod process;
mod random;
pub mod rate;
pub mod sampling;
pub mod slots;
pub mod stack;
pub mod task;
pub mod thread_create;
pub mod wait_site;

pub use block_kinds::BlockKinds;
pub use block_profile::{
    BlockProfileRecord, MAX_THREAD_RECORDS, StackRecord, block_profile, block_profile_into, mutex_profile,
    mutex_profile_into, thread_create_profile, thread_create_profile_into,
};
pub use goroutine_profile::{
    GoroutineKind, GoroutineRecord, GoroutineState, goroutine_profile, goroutine_profile_into, num_goroutine,
};
pub use mem_profile::{MemProfileRecord, mem_profile, mem_profile_into};
pub use stack::MAX_STACK;
