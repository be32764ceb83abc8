//! Sockets: messages in several parts, and several messages at once.
//!
//! Not with a static musl, whose structures differ from the kernel's and are converted by it.

use core::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use super::define::{interposed, kernel};
use super::sockets::transfer;

/// The type of the flags of calls for several messages, which the C libraries declare differently.
#[cfg(target_env = "musl")]
type Flags = c_uint;
#[cfg(not(target_env = "musl"))]
type Flags = c_int;

interposed! {
    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t:
        transfer(socket, flags), => kernel!(SYS_recvmsg, socket, message, flags);
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t:
        transfer(socket, flags), => kernel!(SYS_sendmsg, socket, message, flags);
    fn recvmmsg(
        socket: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: Flags,
        timeout: *mut timespec,
    ) -> c_int:
        transfer(socket, flags as c_int), => kernel!(SYS_recvmmsg, socket, messages, count, flags, timeout);
    fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: Flags) -> c_int:
        transfer(socket, flags as c_int), => kernel!(SYS_sendmmsg, socket, messages, count, flags);
}
