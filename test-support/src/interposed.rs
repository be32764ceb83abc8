//! Whether this program was built with rtprof's feature `interpose`.

use std::ffi::c_void;

/// Returns whether a function of this program stands in for the C library's. Asked of the linked program, because
/// Cargo does not tell one package about the features of another. A static program has the C library in it: then this
/// returns true, so that a test does not ask for what only holds without the feature.
pub fn is_interposed() -> bool {
    let lock = libc::pthread_mutex_lock as *const c_void;
    module_of(lock) == module_of(is_interposed as *const c_void)
}

/// Returns the base address of the program or library that has this address.
fn module_of(address: *const c_void) -> usize {
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    unsafe { libc::dladdr(address, &mut info) };
    info.dli_fbase.addr()
}
