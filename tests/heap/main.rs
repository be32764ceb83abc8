//! The allocator: every layout, many threads and stacks, little memory, forks; over the system's and over others
//! (tests/allocators).
#![cfg(feature = "pprof")]

mod collector;
mod hostile_fork;
mod hostile_limit;
mod hostile_stacks;
mod hostile_threads;
mod layouts;
#[path = "../support/mod.rs"]
mod support;
mod workspace;

use support::inner::{INNER, Inner};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Inner> = rtprof::ProfAlloc::new(INNER);
