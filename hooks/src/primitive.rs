//! The atomics and cells of the locks, in one place, so that loom can stand in for them.
//!
//! A model test is `RUSTFLAGS="--cfg loom" cargo test -p rtprof-hooks --release loom_`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

pub(crate) use rtprof_runtime::primitive::UnsafeCell;
