//! Traces: their contents, their writers, and Go's tools reading them.
#![cfg(feature = "pprof")]

mod asleep;
#[path = "../support/churn.rs"]
mod churn;
mod collector;
mod events;
mod flight;
mod interop;
mod labels;
mod many_threads;
mod misuse;
mod perfetto;
mod samples;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod task_windows;
#[path = "../support/trace_go.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_go;
#[path = "../support/trace.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_of;
#[path = "../support/trace_script.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_script;
mod truth;
mod window_files;
mod writers;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
