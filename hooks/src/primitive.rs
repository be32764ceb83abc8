//! The atomics and cells of the locks, in one place, so that loom can stand in for them.
//!
//! A model test is `RUSTFLAGS="--cfg loom" cargo test -p rtprof-hooks --release loom_`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

pub(crate) use rtprof_profiler::primitive::UnsafeCell;
