//! The atomics of every lock-free structure, in one place, so that loom can stand in for them.
//!
//! A model test is `RUSTFLAGS="--cfg loom" cargo test -p rtprof-profiler --release loom_`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
