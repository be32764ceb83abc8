//! Sockets whose descriptors the program may close.
//!
//! Problem: a program may close descriptors that it has not opened, as a daemon does at its start, and `closefrom`. Their
//! numbers may be those of its own files by now, which are not to be read, written or closed. Scheme: a socket is known by its
//! cookie, a number that the kernel gives no other socket, and is asked for it before each use. Between the question and the
//! use the program may still close it: that is a moment of some instructions, and not for ever.
//!
//! The cookie is Linux's. Elsewhere nothing is noticed.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;

#[cfg(target_os = "linux")]
use socket2::SockRef;

/// A socket with a cookie.
#[cfg(target_os = "linux")]
pub(crate) trait Socket: AsFd + Sized {
    /// Returns the cookie; `None` before Linux 4.12.
    fn cookie(&self) -> Option<u64> {
        SockRef::from(self).cookie().ok()
    }
}

#[cfg(target_os = "linux")]
impl<S: AsFd> Socket for S {}

/// A socket.
#[cfg(not(target_os = "linux"))]
pub(crate) trait Socket {
    fn cookie(&self) -> Option<u64> {
        None
    }
}

#[cfg(not(target_os = "linux"))]
impl<S> Socket for S {}

/// A socket that is closed when this is dropped, unless the program has closed it.
pub(crate) struct Owned<S: Socket> {
    /// `None` only while this is dropped.
    socket: Option<S>,
    cookie: Option<u64>,
}

impl<S: Socket> Owned<S> {
    pub(crate) fn new(socket: S) -> Self {
        let cookie = socket.cookie();
        Self { socket: Some(socket), cookie }
    }

    /// Returns the socket.
    ///
    /// # Errors
    /// The program has closed it.
    pub(crate) fn get(&self) -> io::Result<&S> {
        let socket = self.socket.as_ref().expect("it is there until it is dropped");
        if self.cookie.is_none() || socket.cookie() == self.cookie {
            Ok(socket)
        } else {
            Err(io::Error::other("the program has closed the descriptor"))
        }
    }

    /// As [`Owned::get`].
    pub(crate) fn get_mut(&mut self) -> io::Result<&mut S> {
        self.get()?;
        Ok(self.socket.as_mut().expect("it is there until it is dropped"))
    }
}

impl<S: Socket> Drop for Owned<S> {
    fn drop(&mut self) {
        if self.get().is_err() {
            std::mem::forget(self.socket.take());
        }
    }
}
