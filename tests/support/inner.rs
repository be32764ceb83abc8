//! The allocator under ours: the system's here, jemalloc or mimalloc when `tests/allocators` builds these
//! same tests with a feature of its own. They are C to compile, which a plain `cargo test` should not.
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

/// Whether it is the system's.
pub(crate) const IS_SYSTEM: bool = !cfg!(any(feature = "jemalloc", feature = "mimalloc"));
