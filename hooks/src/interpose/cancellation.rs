//! `pthread_setcanceltype`: whether a thread may be cancelled at any instruction.
//!
//! Problem: such a thread would be unwound from within a hook, through frames that cannot be unwound, and the C library ends
//! the process. Scheme: its calls are not recorded. (POSIX allows it hardly any call, but without us most of them work.)

use core::ffi::c_int;

use rtprof_runtime::hidden;

use super::forward::{Next, function};

type Set = unsafe extern "C-unwind" fn(c_int, *mut c_int) -> c_int;

/// `PTHREAD_CANCEL_DEFERRED`, in both C libraries: a thread is cancelled in some calls only.
const DEFERRED: c_int = 0;
/// `PTHREAD_CANCEL_ASYNCHRONOUS`
const ASYNCHRONOUS: c_int = 1;

static SET: Next = Next::new();

pub(super) fn find() {
    SET.find(c"pthread_setcanceltype");
}

/// `int pthread_setcanceltype(int, int *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    // Before the thread may be cancelled here: within the C library's function, for example.
    if kind == ASYNCHRONOUS {
        hidden::set_always(true);
    }
    let result = function!(SET, c"pthread_setcanceltype", Set)
        // SAFETY: the caller keeps the contract of the C library's function.
        .map_or(libc::EINVAL, |next| unsafe { next(kind, before) });
    if kind == DEFERRED {
        hidden::set_always(false);
    }
    result
}
