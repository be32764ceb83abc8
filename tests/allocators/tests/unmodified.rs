//! Waits of unmodified code: tests/unmodified.

#[path = "../../unmodified/c_kinds.rs"]
mod c_kinds;
#[path = "../../unmodified/c_lock.rs"]
mod c_lock;
#[path = "../../unmodified/c_locks.rs"]
mod c_locks;
#[path = "../../unmodified/hostile.rs"]
mod hostile;
#[path = "../../unmodified/locks.rs"]
mod locks;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../unmodified/threads.rs"]
mod threads;
#[path = "../../support/trace.rs"]
#[allow(dead_code, reason = "every test uses its own part of this")]
mod trace_of;
#[path = "../../unmodified/traces.rs"]
mod traces;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
