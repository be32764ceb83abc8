//! The goroutine profile: all tests of tests/goroutines.

#[path = "../../goroutines/asked.rs"]
mod asked;
#[path = "../../goroutines/forks.rs"]
mod forks;
#[path = "../../goroutines/names.rs"]
mod names;
#[path = "../../goroutines/others.rs"]
mod others;
#[path = "../../goroutines/signals.rs"]
mod signals;
#[path = "../../goroutines/silent.rs"]
mod silent;
#[path = "../../goroutines/storm.rs"]
mod storm;
#[path = "../../support/mod.rs"]
mod support;
#[path = "../../goroutines/truth.rs"]
mod truth;
#[path = "../../goroutines/waits.rs"]
mod waits;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
