//! Waiting for processes.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};

use super::calls::Call::System;
use super::define::{interposed, kernel};

interposed! {
    fn waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t:
        System, => kernel!(SYS_wait4, process, status, options, null_mut::<rusage>());
    fn wait4(process: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t:
        System, => kernel!(SYS_wait4, process, status, options, usage);
    fn waitid(kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int:
        System, => kernel!(SYS_waitid, kind, id, info, options, null_mut::<c_void>());
}
