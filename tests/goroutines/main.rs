//! The goroutine profile: threads that wait, run, begin and end.
#![cfg(feature = "pprof")]

mod asked;
mod forks;
mod names;
mod others;
mod signals;
mod silent;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod truth;
mod waits;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
