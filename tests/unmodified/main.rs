//! Programs that know nothing of rtprof: their locks, channels, threads and sleeps, as functions of the C library see them.
#![cfg(feature = "pprof")]

mod locks;
#[path = "../support/mod.rs"]
mod support;
mod threads;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
