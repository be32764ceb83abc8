//! The CPU profile: its contents for programs whose work is known, and its effects on other code.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod hosts;
mod interop;
mod misuse;
mod names;
mod refused;
mod room;
mod stress;
mod tasks;
mod totals;
mod truth;
pub(crate) mod work;
