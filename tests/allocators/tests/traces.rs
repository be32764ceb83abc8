//! Stacks of traces: the tests of tests/traces that check every kind of event.

#[path = "../../traces/events.rs"]
mod events;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../support/trace.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_of;
#[path = "../../support/trace_script.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_script;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
