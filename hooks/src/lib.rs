//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
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

#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(loom))))]
// Models use a part of `inner`.
#![cfg_attr(loom, allow(dead_code, unreachable_pub, unused_imports))]

#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
pub mod task;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod trace;
#[cfg(all(feature = "tracing", not(loom)))]
pub mod tracing;

mod frame;
mod inner;
#[cfg(rtprof_interposed)]
mod interpose;
