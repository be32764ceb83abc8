//! Locks, channels, threads and tasks whose waits rtprof records.
//!
//! [`sync`] has drop-in replacements for the locks and channels of std and parking_lot, [`thread`] for
//! `std::thread`. Programs use them through the facade, as `rtprof::sync` and `rtprof::thread`.
//!
//! # How a wait becomes an event
//!
//! ```text
//!   lock() ─ contended ─► Wait::prepare ─► queue::park ── joins the lock's Account, sleeps
//!                                               ▲
//!   unlock() ─ waiters ─► queue::wake ──────────┘ notes when; Account::charge: what all waiters owe
//!                              │                  │
//!                  wait::charged (mutex profile)  └─► Wait::end (block profile)
//! ```
//!
//! Taking a free lock is one compare-and-swap, as without rtprof: it reads no clock, no thread-local and no flag.

// Models use a part of this crate.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(loom))))]
#![cfg_attr(loom, allow(dead_code, unreachable_pub, unused_imports))]

pub mod sync;
#[cfg(not(loom))]
pub mod task;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod trace;
#[cfg(all(feature = "tracing", not(loom)))]
pub mod tracing;

mod account;
mod charged_queue;
#[cfg(not(loom))]
mod deadline;
mod frame;
#[cfg(rtprof_interposed)]
mod interpose;
#[cfg(loom)]
mod model;
mod primitive;
mod queue;
#[cfg(any(rtprof_interposed, all(test, loom)))]
mod sleepers;
mod spin;
mod wait;
