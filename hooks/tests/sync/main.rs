//! What locks and channels promise, as a program sees it.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these are no hooks")]

mod barrier;
mod channel;
mod channel_ends;
mod channel_stress;
mod condvar;
mod drop_in;
mod once;
mod semaphore;
mod semaphore_stress;
mod traits;
mod watched;
