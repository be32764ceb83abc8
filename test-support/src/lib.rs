//! What the tests of rtprof's crates share: a decoder of profiles that is independent of our encoder, the real Go tools,
//! a browser, scripts whose traces are known, and separate processes for tests that must not share one.
//!
//! Not published. The crate's root has what nearly every test uses; each module is one subject.

#![allow(missing_docs, reason = "names say what most of this is, and docs say the rest")]

pub mod address_space;
mod background;
pub mod child;
pub mod descriptors;
pub mod dying;
pub mod fixture;
pub mod folder;
#[cfg(target_arch = "x86_64")]
pub mod foreign_stack;
pub mod fork;
pub mod go;
pub mod go_raw;
pub mod inner;
mod interposed;
pub mod library;
pub mod processor;
pub mod random;
pub mod sample_types;
pub mod sandbox;
pub mod signals;
mod skipped;
mod stress;
pub mod threads;
mod until;
pub mod workload;

// The feature `rtprof`:

#[cfg(feature = "rtprof")]
pub mod browser;
#[cfg(feature = "rtprof")]
pub mod churn;
#[cfg(feature = "rtprof")]
pub mod contention;
#[cfg(feature = "rtprof")]
mod events_checked;
#[cfg(feature = "rtprof")]
pub mod flame_graph;
#[cfg(feature = "rtprof")]
pub mod profile;
#[cfg(feature = "rtprof")]
pub mod recording;
#[cfg(feature = "rtprof")]
pub mod room;
#[cfg(feature = "rtprof")]
pub mod top;
#[cfg(feature = "rtprof")]
pub mod trace_go;
#[cfg(feature = "rtprof")]
pub mod trace_script;
#[cfg(feature = "rtprof")]
pub mod web;

pub use background::Background;
pub use interposed::is_interposed;
pub use skipped::skipped;
pub use stress::{is_long, rounds, stress};
pub use until::{PATIENCE, until};
