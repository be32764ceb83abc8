//! Spans and events of the crate tracing, in traces: a layer for `tracing_subscriber`.

pub use rtprof_hooks::tracing::{Layer, layer};
