//! Async tasks in traces: when each ran, what it waited for, and what woke it.
#![cfg(feature = "pprof")]

#[path = "../tasks/by_hand.rs"]
#[allow(dead_code, reason = "what is counted is asked elsewhere")]
mod by_hand;
#[path = "../support/churn.rs"]
mod churn;
mod leaves;
mod order;
mod regions;
mod samples;
mod script;
#[cfg(feature = "tracing")]
mod spans;
mod storms;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trace_go.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_go;
#[path = "../support/trace.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_of;
#[cfg(feature = "tokio")]
mod workers;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
