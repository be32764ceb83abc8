//! Where goroutines are: all of tests/goroutines.

#[path = "../../goroutines/forks.rs"]
mod forks;
#[path = "../../goroutines/signals.rs"]
mod signals;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../goroutines/truth.rs"]
mod truth;
#[path = "../../goroutines/waits.rs"]
mod waits;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
