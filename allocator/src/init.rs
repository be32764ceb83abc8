//! Before `main`: the one place where the allocator's parts are made and sampling begins.
//!
//! Until the constructor has run every allocation passes through, because the epoch of the rate is
//! still the one that threads are born with.

use rtprof_profiler::rate;

use crate::pool;

extern "C" fn construct() {
    rtprof_profiler::init::open();
    stay_loaded();
    pool::open();
    rate::start();
}

/// Keeps a library that contains this crate from being unloaded: its pool and tables would stay behind
/// at each unloading, 64 GiB of addresses at a time, and so would the samples of objects that live on.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn stay_loaded() {
    let here = construct as extern "C" fn() as usize;
    if let Some(library) = rtprof_profiler::modules::find(here).filter(|m| !m.is_main_executable)
        && let Ok(name) = std::ffi::CString::new(library.loader_name())
    {
        // SAFETY: the library is loaded already, so this runs no code of it; it marks it as permanent.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn stay_loaded() {}

/// The loader calls this before `main`, and when a library that contains it is loaded.
#[cfg_attr(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")), used)]
#[cfg_attr(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    unsafe(link_section = ".init_array")
)]
pub(crate) static CONSTRUCTOR: extern "C" fn() = construct;
