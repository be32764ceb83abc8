//! The allocator under ours: the system's here; jemalloc or mimalloc when `tests/allocators` builds these tests with a
//! feature for it. Those compile C code, which a plain `cargo test` should not.
#![allow(unexpected_cfgs, reason = "the features are those of tests/allocators")]

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
pub(crate) type Inner = std::alloc::System;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
pub(crate) const INNER: Inner = std::alloc::System;

#[cfg(feature = "jemalloc")]
pub(crate) type Inner = tikv_jemallocator::Jemalloc;
#[cfg(feature = "jemalloc")]
pub(crate) const INNER: Inner = tikv_jemallocator::Jemalloc;

#[cfg(feature = "mimalloc")]
pub(crate) type Inner = mimalloc::MiMalloc;
#[cfg(feature = "mimalloc")]
pub(crate) const INNER: Inner = mimalloc::MiMalloc;

/// Whether the inner allocator is the system's.
pub(crate) const IS_SYSTEM: bool = !cfg!(any(feature = "jemalloc", feature = "mimalloc"));
