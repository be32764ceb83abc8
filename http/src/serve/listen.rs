//! Resolves and binds the address of a server.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Binds the first of the addresses that can be bound.
pub(crate) fn bind(addresses: impl ToSocketAddrs, allow_remote: bool) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = match addresses.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            return Err(explained(error, "no address to serve profiles on, such as \"127.0.0.1:6060\""));
        }
    };
    if addresses.is_empty() {
        let message = "no address to serve profiles on: the name stands for none";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let remote = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(remote) = remote.filter(|_| !allow_remote) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, ReachedByOthers(*remote)));
    }
    let listener = TcpListener::bind(&addresses[..])
        .map_err(|error| explained(error, &format!("cannot serve profiles on {}", list(&addresses))))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The address that is refused because other machines reach it.
#[derive(Debug)]
pub(crate) struct ReachedByOthers(pub(crate) SocketAddr);

impl fmt::Display for ReachedByOthers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} can be reached from other machines, and profiles tell names, paths and labels; serve on 127.0.0.1, or \
             allow it with Config::allow_remote and set Config::token",
            self.0
        )
    }
}

impl std::error::Error for ReachedByOthers {}

fn explained(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn list(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    addresses.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn refused(addresses: impl ToSocketAddrs, allow_remote: bool) -> (ErrorKind, String) {
        let error = bind(addresses, allow_remote).expect_err("it is refused");
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_loopback_address_is_bound() {
        for address in ["127.0.0.1:0", "localhost:0"] {
            assert!(bind(address, false).unwrap().local_addr().unwrap().ip().is_loopback());
        }
    }

    #[test]
    fn what_others_reach_must_be_allowed() {
        let remote = ["0.0.0.0:0", "[::]:0", "192.0.2.1:6060", "[::ffff:192.0.2.1]:1"];
        for address in remote {
            let (kind, message) = refused(address, false);
            assert_eq!(kind, ErrorKind::PermissionDenied);
            let bare: SocketAddr = address.parse().unwrap();
            assert!(message.starts_with(&format!("{bare} can be reached from other machines")), "{message}");
            assert!(message.contains("Config::allow_remote"), "{message}");
        }
        // One remote address among several is enough.
        let mixed: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "0.0.0.0:0".parse().unwrap()];
        assert_eq!(refused(&mixed[..], false).0, ErrorKind::PermissionDenied);
        assert!(bind("0.0.0.0:0", true).is_ok());
    }

    #[test]
    fn errors_say_what_was_wanted() {
        let taken = bind("127.0.0.1:0", false).unwrap().local_addr().unwrap();
        let holder = TcpListener::bind(taken);
        let (kind, message) = refused(taken, false);
        drop(holder);
        assert_eq!(kind, ErrorKind::AddrInUse);
        assert!(message.starts_with(&format!("cannot serve profiles on {taken}: ")), "{message}");
        // An address reserved for documentation, which no machine has.
        let (kind, message) = refused("192.0.2.1:6060", true);
        assert_eq!(kind, ErrorKind::AddrNotAvailable);
        assert!(message.starts_with("cannot serve profiles on 192.0.2.1:6060: "), "{message}");
        for nonsense in ["", "6060", ":6060", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:66000"] {
            let (_, message) = refused(nonsense, false);
            assert!(
                message.starts_with("no address to serve profiles on, such as \"127.0.0.1:6060\": "),
                "{message}"
            );
        }
        let none: [SocketAddr; 0] = [];
        assert_eq!(refused(&none[..], false).0, ErrorKind::InvalidInput);
    }
}
