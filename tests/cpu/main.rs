//! The CPU profile: its contents for programs whose work is known, and its effects on other code.
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
