//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! The recording side of the execution tracer: threads write records to their own buffers.
//!
//! ```text
//!   hooks, annotations ─► LaneWriter ─► Lane ── full buffer, or a new generation ──► Queue ─► Drain ─► Generation
//!                          │                                                             cuts      │
//!                          └─ a goroutine's state: one word, one compare-and-swap                  └─► an encoder
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`record`], [`generation`] | the records, in a form that knows no trace format |
//! | `lane`, `shared`, `buffer`, `buffers`, `queue`, `barrier` | how records reach the drain; threads share no lock |
//! | `lane_writer`, [`states`] | how a goroutine's changes are recorded in their true order, from any moment on |
//! | `lane_writer::tasks`, [`polls`] | the same for async tasks |
//! | `tables` | the ids of stacks and strings |
//! | [`drain`], `everyone` | start, stop, and the cuts in between |
//! | `task`, `region`, `log`, `sample`, [`heap`], [`collector`] | other events |
//!
//! # Rules of the hooks
//! As in `rtprof_runtime`: no allocation, no lock that a signal handler or a forked child could find held, no panic. A
//! signal handler that interrupts an event of its thread records to a shared lane, and does not wait for it for long.
//! The CPU sampler's handler has lanes for which it does not wait at all.

// Models use only a part of the crate.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod barrier;
mod buffer;
mod buffers;
mod collected;
pub mod collector;
mod declared;
pub mod drain;
mod everyone;
pub mod generation;
pub mod heap;
mod lane;
mod lane_writer;
mod lease;
mod log;
#[cfg(all(test, loom))]
mod models;
pub mod polls;
mod queue;
pub mod record;
mod recorder;
mod region;
mod sample;
mod session;
mod shared;
pub mod states;
mod tables;
mod task;
mod thread;
mod writers;

pub use collected::Collected;
pub use log::log;
pub use region::{Region, start_region, with_region};
pub use sample::cpu_sample;
pub use tables::View as TableView;
pub use task::{Entered, Suspended, Task};
pub use thread::is_enabled;
