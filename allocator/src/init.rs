//! Before `main`: the one place where the allocator's parts are made and sampling begins.
//!
//! Until the constructor has run every allocation passes through, because the epoch of the rate is
//! still the one that threads are born with.

use rtprof_profiler::rate;

use crate::{pool, workspace};

extern "C" fn construct() {
    rtprof_profiler::init::open_at_start();
    pool::open();
    workspace::open();
    rate::start();
}

/// The loader calls this before `main`, and when a library that contains it is loaded.
#[cfg_attr(all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")), used)]
#[cfg_attr(
    all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    unsafe(link_section = ".init_array")
)]
pub(crate) static CONSTRUCTOR: extern "C" fn() = construct;
