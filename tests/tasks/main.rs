//! Async tasks in the goroutine profile: what each awaits, and at which line.
#![cfg(feature = "pprof")]

mod block;
mod branches;
mod by_hand;
mod churn;
mod dump;
mod executors;
mod labels;
mod leaked;
mod leaves;
mod misuse;
mod nested;
#[cfg(feature = "tokio")]
mod spawning;
mod states;
#[path = "../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
