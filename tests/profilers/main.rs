//! The profilers and the tracer, asked by the process that they observe.
//!
//! Each test runs in a process of its own: it starts this program again with itself selected (`child::isolated`), so that
//! settings, totals and crashes are its own, and all of them can be one program, which is built and linked once. Beside it
//! are `readers`, and programs that need another global allocator. ARCHITECTURE.md says what each module proves.
#![cfg(feature = "pprof")]

mod alloc_free_trace;
mod cpu;
mod goroutines;
mod heap;
mod hostile_cancel;
mod hostile_cancel_steps;
mod hostile_dlopen;
mod hostile_handlers;
mod hostile_life;
mod hostile_locks;
mod hostile_stacks;
mod hostile_storm;
mod hostile_timers;
mod profile_api;
mod task_traces;
mod tasks;
mod traces;
mod waits;

use test_support::inner::{INNER, Inner};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Inner> = rtprof::ProfAlloc::new(INNER);
