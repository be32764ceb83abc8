//! The CPU profile: all tests of tests/cpu that do not need Go.

#[path = "../../cpu/hosts.rs"]
mod hosts;
#[path = "../../cpu/misuse.rs"]
mod misuse;
#[path = "../../cpu/refused.rs"]
mod refused;
#[path = "../../cpu/room.rs"]
mod room;
#[path = "../../cpu/stress.rs"]
mod stress;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../cpu/tasks.rs"]
mod tasks;
#[path = "../../cpu/totals.rs"]
mod totals;
#[path = "../../cpu/truth.rs"]
mod truth;
#[path = "../../cpu/work.rs"]
mod work;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
