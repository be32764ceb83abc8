//! Sockets: sending, receiving and connections.

use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};

use libc::{size_t, sockaddr, socklen_t, ssize_t};

use super::calls::Call;
use super::define::{interposed, kernel};

/// With `MSG_DONTWAIT` a call does not wait, even on a blocking socket.
#[inline(always)]
pub(super) fn transfer(socket: c_int, flags: c_int) -> Call {
    if flags & libc::MSG_DONTWAIT == 0 { Call::Socket { socket } } else { Call::System }
}

#[inline(always)]
fn acceptance(socket: c_int, flags: c_int) -> Call {
    Call::Accept { socket, is_nonblocking: flags & libc::SOCK_NONBLOCK != 0 }
}

interposed! {
    fn recv(socket: c_int, to: *mut c_void, size: size_t, flags: c_int) -> ssize_t:
        transfer(socket, flags),
        => kernel!(SYS_recvfrom, socket, to, size, flags, null_mut::<sockaddr>(), null_mut::<socklen_t>());
    fn recvfrom(
        socket: c_int,
        to: *mut c_void,
        size: size_t,
        flags: c_int,
        address: *mut sockaddr,
        length: *mut socklen_t,
    ) -> ssize_t:
        transfer(socket, flags), => kernel!(SYS_recvfrom, socket, to, size, flags, address, length);
    fn send(socket: c_int, from: *const c_void, size: size_t, flags: c_int) -> ssize_t:
        transfer(socket, flags), => kernel!(SYS_sendto, socket, from, size, flags, null::<sockaddr>(), 0);
    fn sendto(
        socket: c_int,
        from: *const c_void,
        size: size_t,
        flags: c_int,
        address: *const sockaddr,
        length: socklen_t,
    ) -> ssize_t:
        transfer(socket, flags), => kernel!(SYS_sendto, socket, from, size, flags, address, length);
    fn accept(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int:
        acceptance(socket, 0), => kernel!(SYS_accept, socket, address, length);
    fn accept4(socket: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int:
        acceptance(socket, flags), => kernel!(SYS_accept4, socket, address, length, flags);
    fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int:
        Call::Connect { socket }, => kernel!(SYS_connect, socket, address, length);
}
