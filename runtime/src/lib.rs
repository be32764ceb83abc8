//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! The foundation on which the recorders and hooks are built.
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
//! | [`primitive`], [`memory`] | words, memory and tables that hooks may use |
//! | [`hook`] | the profiler's per-thread state, and which waits are reported |
//! | [`lock`], [`process`], [`thread`], [`signal`] | what the process has once: locks for the work outside hooks, files, threads, handlers |
//! | [`clock`], [`random`] | timestamps and random numbers |
//! | [`modules`], [`stack`], [`boundary`] | where code is mapped, and the current thread's stack |
//! | [`labels`] | labels that samples carry |
//! | [`goroutine`], [`goroutine_id`], [`task`] | the registries of threads and tasks, and the attributes of both |
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
