//! What wakes the thread that polls, and tells whether its descriptor is still that of its own poll.

use std::io;

use mio::{Registry, Token};

#[cfg(target_os = "linux")]
pub(crate) use linux::Bell;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;

    use mio::Interest;
    use mio::unix::SourceFd;

    use super::{Registry, Token, io};
    use crate::serve::descriptor::Owned;

    /// A connection of which one end is registered. A program may have closed both and the poll's descriptor, and have one of
    /// its own polls in its place: there the end is not registered.
    pub(crate) struct Bell {
        token: Token,
        registered: Owned<UnixDatagram>,
        other: Owned<UnixDatagram>,
    }

    impl Bell {
        pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let (registered, other) = UnixDatagram::pair()?;
            other.set_nonblocking(true)?;
            registry.register(&mut SourceFd(&registered.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Self { token, registered: Owned::new(registered), other: Owned::new(other) })
        }

        /// Wakes the thread, if the program has left the descriptor open.
        pub(crate) fn ring(&self) {
            if let Ok(other) = self.other.get() {
                let _ = other.send(&[0]);
            }
        }

        /// Checks that this is the registry of the poll that the bell was made for.
        pub(crate) fn check(&self, registry: &Registry) -> io::Result<()> {
            let registered = self.registered.get()?.as_raw_fd();
            registry.reregister(&mut SourceFd(&registered), self.token, Interest::READABLE)
        }
    }
}

/// A waker; what the program closes is not noticed.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Bell(mio::Waker);

#[cfg(not(target_os = "linux"))]
impl Bell {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        mio::Waker::new(registry, token).map(Self)
    }

    pub(crate) fn ring(&self) {
        let _ = self.0.wake();
    }

    pub(crate) fn check(&self, _registry: &Registry) -> io::Result<()> {
        Ok(())
    }
}
