//! Waits for locks, channels, conditions and threads, and the profiles of them.
#![cfg(feature = "pprof")]

mod channels;
mod channels_stacks;
mod channels_stress;
mod conditions;
mod events;
mod kinds;
mod locks_stress;
mod locks_stress_rw;
mod on_its_way;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod truth;
mod truth_rw;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
