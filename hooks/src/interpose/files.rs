//! Reading, writing and other operations on files.

use core::ffi::{c_int, c_void};

use libc::{iovec, off_t, off64_t, size_t, ssize_t};

use super::define::interposed_as_system;

interposed_as_system! {
    fn read(file: c_int, to: *mut c_void, size: size_t) -> ssize_t = SYS_read;
    fn write(file: c_int, from: *const c_void, size: size_t) -> ssize_t = SYS_write;
    fn readv(file: c_int, to: *const iovec, count: c_int) -> ssize_t = SYS_readv;
    fn writev(file: c_int, from: *const iovec, count: c_int) -> ssize_t = SYS_writev;
    fn pread(file: c_int, to: *mut c_void, size: size_t, at: off_t) -> ssize_t = SYS_pread64;
    fn pread64(file: c_int, to: *mut c_void, size: size_t, at: off64_t) -> ssize_t = SYS_pread64;
    fn pwrite(file: c_int, from: *const c_void, size: size_t, at: off_t) -> ssize_t = SYS_pwrite64;
    fn pwrite64(file: c_int, from: *const c_void, size: size_t, at: off64_t) -> ssize_t = SYS_pwrite64;
    fn preadv(file: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t = SYS_preadv;
    fn preadv64(file: c_int, to: *const iovec, count: c_int, at: off64_t) -> ssize_t = SYS_preadv;
    fn pwritev(file: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t = SYS_pwritev;
    fn pwritev64(file: c_int, from: *const iovec, count: c_int, at: off64_t) -> ssize_t = SYS_pwritev;
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, size: size_t) -> ssize_t = SYS_sendfile;
    fn sendfile64(to: c_int, from: c_int, at: *mut off64_t, size: size_t) -> ssize_t = SYS_sendfile;
    fn fsync(file: c_int) -> c_int = SYS_fsync;
    fn fdatasync(file: c_int) -> c_int = SYS_fdatasync;
    fn flock(file: c_int, operation: c_int) -> c_int = SYS_flock;
}
