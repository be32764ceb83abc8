//! The constructor that runs before `main`, makes the allocator's parts and starts sampling.
//!
//! Until it has run every allocation passes through unsampled, because the rate's epoch still equals the initial epoch
//! of every thread.

use rtprof_profiler::rate;

use crate::{pool, workspace};

extern "C" fn construct() {
    rtprof_profiler::init::open_at_start();
    pool::open();
    workspace::open();
    rate::start();
}

/// The constructor, which the loader calls before `main`, and when a library that contains it is loaded.
#[cfg_attr(all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")), used)]
#[cfg_attr(
    all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    unsafe(link_section = ".init_array")
)]
pub(crate) static CONSTRUCTOR: extern "C" fn() = construct;
