//! The ground of rtprof: what its recorders and hooks stand on.
//!
//! Programs use the facade, `rtprof`. This crate is for those who write hooks, recorders or exporters.
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
//! | [`primitive`], [`atomic_ref`], [`mapping`], [`arena`], [`slots`] | memory and words that hooks may use |
//! | [`hook`], [`errno`], [`hidden`], [`listeners`] | what the current thread does for the profiler, and which waits are of interest |
//! | [`fork_lock`], [`fork_safe`], [`helper_thread`] | locks and threads for the work outside hooks |
//! | [`clock`], [`random`] | time and chance |
//! | [`modules`], [`stack`], [`boundary`] | where code lies, and where the current thread is in it |
//! | [`labels`] | labels that samples carry |
//! | [`state`], [`wait_reason`], [`name`], [`start`] | what is said of a goroutine |
//! | [`goroutine`], [`task`], [`thread_create`] | which threads and tasks there are |
//! | [`snapshot`] | all of them at one instant, with their stacks |
//! | [`counters`] | what could not be recorded |
//! | [`init`] | what must be made before the first hook |
//!
//! # Platforms
//!
//! Linux on x86-64 is tested, on aarch64 it builds. Elsewhere everything compiles and records nothing.

// A model uses a part of this.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[macro_use]
pub mod primitive;

pub mod arena;
pub mod atomic_ref;
pub mod boundary;
pub mod clock;
pub mod counters;
#[cfg(rtprof_supported)]
pub mod disposition;
pub mod errno;
pub mod fork_lock;
pub mod fork_safe;
pub mod goroutine;
pub mod goroutine_id;
pub mod helper_thread;
pub mod hidden;
pub mod holder_lock;
pub mod hook;
pub mod init;
pub mod kernel_thread;
pub mod labels;
pub mod listeners;
pub mod mapping;
pub mod modules;
pub mod name;
pub mod nap;
pub mod own_files;
#[cfg(rtprof_supported)]
pub mod proc;
pub mod process;
pub mod random;
pub mod slots;
pub mod snapshot;
pub mod stack;
pub mod start;
pub mod state;
pub mod task;
pub mod thread_create;
pub mod wait_reason;
pub mod wait_site;

pub use stack::MAX_STACK;
