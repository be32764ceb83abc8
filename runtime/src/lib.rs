//! The foundation of rtprof, on which its recorders and hooks are built.
//!
//! Programs use the facade, `rtprof`. This crate is for authors of hooks, recorders and exporters.
//!
//! # Rules of the hooks
//!
//! A function documented as safe in a hook may run inside `GlobalAlloc`, with any lock of the program held, before
//! `main`, in a dying thread, and in a forked child. It takes no lock, allocates nothing from the program's allocator,
//! initialises nothing lazily, never panics and never unwinds through libgcc. Every other function may take locks and
//! allocate, and must not be called from such places.
//!
//! # Reading order
//!
//! | module | contents |
//! |---|---|
//! | [`primitive`], [`atomic_ref`], [`mapping`], [`arena`], [`slots`] | memory and words that hooks may use |
//! | [`hook`], [`errno`], [`hidden`], [`listeners`] | the profiler's per-thread state, and which waits are reported |
//! | [`fork_lock`], [`fork_safe`], [`helper_thread`] | locks and threads for the work outside hooks |
//! | [`clock`], [`random`] | timestamps and random numbers |
//! | [`modules`], [`stack`], [`boundary`] | where code is mapped, and the current thread's stack |
//! | [`labels`] | labels that samples carry |
//! | [`state`], [`wait_reason`], [`name`], [`start`] | the attributes of a goroutine |
//! | [`goroutine`], [`task`], [`thread_create`] | the registries of threads and tasks |
//! | [`snapshot`] | all goroutines at one instant, with their stacks |
//! | [`counters`] | what could not be recorded |
//! | [`init`] | what must be initialised before the first hook |
//!
//! # Platforms
//!
//! Linux on x86-64 is tested, on aarch64 it builds. Elsewhere everything compiles and records nothing.

// A loom model uses only a part of the crate.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[macro_use]
pub mod primitive;

pub mod boundary;
pub mod clock;
pub mod counters;
pub mod goroutine;
pub mod goroutine_id;
pub mod hook;
pub mod init;
pub mod labels;
pub mod lock;
pub mod memory;
pub mod modules;
pub mod process;
pub mod random;
pub mod signal;
pub mod snapshot;
pub mod stack;
pub mod task;
pub mod thread;

pub use stack::MAX_STACK;
