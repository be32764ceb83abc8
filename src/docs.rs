//! The guides, included so that their examples are compiled.

/// Compiled with a service that spawns tasks.
#[cfg(all(feature = "http", feature = "tokio"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("../docs/contention.md")]
mod contention {}

#[cfg(feature = "pprof")]
#[doc = include_str!("../docs/cpu.md")]
mod cpu {}

/// Compiled with the routes for axum.
#[cfg(feature = "axum")]
#[doc = include_str!("../docs/scraping.md")]
mod scraping {}

#[cfg(feature = "http")]
#[doc = include_str!("../docs/security.md")]
mod security {}

#[cfg(feature = "pprof")]
#[doc = include_str!("../docs/tracing.md")]
mod tracing {}
