//! Who uses the processors: what the CPU profile says of programs whose work is known, and what it does to others.
#![cfg(all(feature = "pprof", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod hosts;
mod interop;
mod misuse;
mod refused;
mod room;
mod stress;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod totals;
mod truth;
mod work;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<support::inner::Inner> = rtprof::ProfAlloc::new(support::inner::INNER);
