//! Files that are missing, change while they are read, or do not answer.
#![cfg(feature = "http")]

mod replaced;
#[cfg(target_env = "gnu")]
mod stalled;
#[path = "../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
