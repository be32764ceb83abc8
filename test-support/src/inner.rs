//! The allocator under ours: the system's, unless a feature of this crate names another. With both features it is
//! jemalloc.

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
pub type Inner = std::alloc::System;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
pub const INNER: Inner = std::alloc::System;

#[cfg(feature = "jemalloc")]
pub type Inner = tikv_jemallocator::Jemalloc;
#[cfg(feature = "jemalloc")]
pub const INNER: Inner = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
pub type Inner = mimalloc::MiMalloc;
#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
pub const INNER: Inner = mimalloc::MiMalloc;

/// Whether the inner allocator is the system's.
pub const IS_SYSTEM: bool = !cfg!(any(feature = "jemalloc", feature = "mimalloc"));
