//! Libraries that call the C library's functions by other versions, or define them too.
#![cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]

use std::ffi::{CStr, c_int, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use test_support::child;
use test_support::contention::{record_everything, record_nothing};
use test_support::library::{Library, library};

use crate::c_lock::CLock;

/// A library that was linked with the C library's first condition variables, which are initialised and destroyed by other
/// functions than those of today. (Other architectures than x86-64 have no such version.)
#[cfg(target_arch = "x86_64")]
#[test]
fn old_condition_variables() {
    static CALLED_BACK: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn called_back(_: *mut c_void) {
        CALLED_BACK.fetch_add(1, Relaxed);
    }
    let path = library("old_condition_variables", include_str!("old_conditions.c"));
    child::isolated("old_condition_variables", || {
        let library = Library::open(&path);
        record_nothing();
        library.call_back_through(c"use_conditions", called_back);
        record_everything();
        library.call_back_through(c"use_conditions", called_back);
        assert_eq!(CALLED_BACK.load(Relaxed), 2);
    });
}

fn counted(name: &CStr) -> c_int {
    // SAFETY: the library has an `int` of that name.
    unsafe {
        let count = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<c_int>();
        assert!(!count.is_null(), "the library is preloaded");
        count.read_volatile()
    }
}

/// A tool that is preloaded sees the program's calls, whatever is recorded.
#[test]
fn preloaded_tools_see_calls() {
    let path = library("preloaded_tools_see_calls", include_str!("preloaded.c"));
    let preload = |command: &mut Command| {
        command.env("LD_PRELOAD", &path);
    };
    child::isolated_with("preloaded_tools_see_calls", "", preload, || {
        let lock = CLock::new();
        for record in [record_nothing, record_everything] {
            record();
            let before = (counted(c"locks"), counted(c"signals"));
            for _ in 0..100 {
                assert_eq!((lock.lock(), lock.unlock()), (0, 0));
                // SAFETY: the condition is valid.
                assert_eq!(unsafe { libc::pthread_cond_signal(lock.condition.get()) }, 0);
            }
            let seen = (counted(c"locks") - before.0, counted(c"signals") - before.1);
            assert_eq!(seen, (100, 100));
        }
        record_nothing();
    });
}
