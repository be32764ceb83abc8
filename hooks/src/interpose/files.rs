//! Reading, writing and other operations on files.

use core::ffi::{c_int, c_void};

use libc::{iovec, off_t, off64_t, size_t, ssize_t};

use super::calls::Call::System;
use super::define::{interposed, kernel};

interposed! {
    fn read(file: c_int, to: *mut c_void, size: size_t) -> ssize_t:
        System, => kernel!(SYS_read, file, to, size);
    fn write(file: c_int, from: *const c_void, size: size_t) -> ssize_t:
        System, => kernel!(SYS_write, file, from, size);
    fn readv(file: c_int, to: *const iovec, count: c_int) -> ssize_t:
        System, => kernel!(SYS_readv, file, to, count);
    fn writev(file: c_int, from: *const iovec, count: c_int) -> ssize_t:
        System, => kernel!(SYS_writev, file, from, count);
    fn pread(file: c_int, to: *mut c_void, size: size_t, at: off_t) -> ssize_t:
        System, => kernel!(SYS_pread64, file, to, size, at);
    fn pread64(file: c_int, to: *mut c_void, size: size_t, at: off64_t) -> ssize_t:
        System, => kernel!(SYS_pread64, file, to, size, at);
    fn pwrite(file: c_int, from: *const c_void, size: size_t, at: off_t) -> ssize_t:
        System, => kernel!(SYS_pwrite64, file, from, size, at);
    fn pwrite64(file: c_int, from: *const c_void, size: size_t, at: off64_t) -> ssize_t:
        System, => kernel!(SYS_pwrite64, file, from, size, at);
    fn preadv(file: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t:
        System, => kernel!(SYS_preadv, file, to, count, at);
    fn preadv64(file: c_int, to: *const iovec, count: c_int, at: off64_t) -> ssize_t:
        System, => kernel!(SYS_preadv, file, to, count, at);
    fn pwritev(file: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t:
        System, => kernel!(SYS_pwritev, file, from, count, at);
    fn pwritev64(file: c_int, from: *const iovec, count: c_int, at: off64_t) -> ssize_t:
        System, => kernel!(SYS_pwritev, file, from, count, at);
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, size: size_t) -> ssize_t:
        System, => kernel!(SYS_sendfile, to, from, at, size);
    fn sendfile64(to: c_int, from: c_int, at: *mut off64_t, size: size_t) -> ssize_t:
        System, => kernel!(SYS_sendfile, to, from, at, size);
    fn fsync(file: c_int) -> c_int:
        System, => kernel!(SYS_fsync, file);
    fn fdatasync(file: c_int) -> c_int:
        System, => kernel!(SYS_fdatasync, file);
    fn flock(file: c_int, operation: c_int) -> c_int:
        System, => kernel!(SYS_flock, file, operation);
}
