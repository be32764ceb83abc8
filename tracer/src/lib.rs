//! The recording side of the execution tracer: what threads do, in buffers of their own.
//!
//! Programs use the facade, `rtprof::trace`. This crate is for those who write hooks or encoders.
//!
//! ```text
//!   hooks, annotations ─► Turn ─► Lane ── full buffer, or a new generation ──► Queue ─► Drain ─► Generation
//!                          │                                                             cuts      │
//!                          └─ a goroutine's state: one word, one compare-and-swap                  └─► an encoder
//! ```
//!
//! | module | what it answers |
//! |---|---|
//! | [`record`], [`generation`] | what is recorded, in a form that knows no trace format |
//! | `lane`, `shared`, `buffer`, `buffers`, `queue`, `barrier` | how records of a thread reach the reader, with no lock between threads |
//! | `turn`, [`states`] | how a goroutine's changes are recorded in their true order, from any moment on |
//! | `turn::tasks`, [`polls`] | the same of async tasks |
//! | `tables` | what stands for stacks and strings |
//! | [`drain`], `everyone` | start, stop, and the cuts in between |
//! | `task`, `region`, `log`, `sample`, [`heap`], [`collector`] | what else is recorded |
//!
//! # Rules of the hooks
//! As in `rtprof_profiler`: no allocation, no lock that a signal handler or a forked child could find held, no panic. A
//! signal handler that interrupts an event of its thread records to a shared lane, without waiting for it for long; the
//! CPU sampler's has lanes that it does not wait for at all.

#[cfg_attr(loom, allow(dead_code))]
mod barrier;
#[cfg_attr(loom, allow(dead_code))]
mod buffer;
#[cfg_attr(loom, allow(dead_code))]
mod buffers;
#[cfg(not(loom))]
mod collected;
#[cfg(not(loom))]
pub mod collector;
#[cfg(not(loom))]
pub mod drain;
#[cfg(not(loom))]
mod everyone;
pub mod generation;
#[cfg(not(loom))]
pub mod heap;
#[cfg_attr(loom, allow(dead_code))]
mod lane;
#[cfg(not(loom))]
mod log;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
pub mod polls;
#[cfg_attr(loom, allow(dead_code))]
mod queue;
pub mod record;
#[cfg_attr(loom, allow(dead_code))]
mod recorder;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod sample;
#[cfg_attr(loom, allow(dead_code))]
mod shared;
#[cfg(not(loom))]
pub mod states;
#[cfg_attr(loom, allow(dead_code))]
mod tables;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod thread;
#[cfg_attr(loom, allow(dead_code))]
mod turn;

#[cfg(not(loom))]
pub use collected::Collected;
#[cfg(not(loom))]
pub use log::log;
#[cfg(not(loom))]
pub use region::{Region, start_region, with_region};
#[cfg(not(loom))]
pub use sample::cpu_sample;
#[cfg(not(loom))]
pub use task::{Entered, Suspended, Task};
#[cfg(not(loom))]
pub use thread::is_enabled;
