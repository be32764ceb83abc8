//! Async tasks in traces: when each ran, what it waited for, and what woke it.

mod leaves;
mod order;
mod regions;
mod samples;
mod script;
#[cfg(feature = "tracing")]
mod spans;
mod storms;
#[cfg(feature = "tokio")]
mod workers;
