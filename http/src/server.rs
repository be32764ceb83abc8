//! A standalone server, for programs that have no server.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use tokio::net::TcpListener;

use crate::Config;
use crate::connection;
use crate::engine::{self, Engine};
use crate::handler::Handler;
use crate::listen;

/// A running server. A dropped server runs on for as long as the process does; [`shutdown`](Self::shutdown) ends it.
pub struct Server {
    engine: Option<Engine>,
    address: SocketAddr,
}

/// Serves `/debug/pprof/` on a loopback address, under the default [`Config`], on a separate thread. Go: `go
/// http.ListenAndServe("localhost:6060", nil)`.
///
/// # Errors
/// Fails if the address cannot be parsed, is in use, does not belong to this machine, or can be reached from other
/// machines ([`Config::allow_remote`]), or if the system refuses a thread.
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Server> {
    serve_with(addr, Config::default())
}

/// Serves as [`serve`] does, under this configuration.
///
/// # Errors
/// Fails as [`serve`] does, and if the token is empty.
pub fn serve_with(addr: impl ToSocketAddrs, config: Config) -> io::Result<Server> {
    if config.token.as_deref().is_some_and(|token| token.trim().is_empty()) {
        let message =
            "Config::token is empty, and an empty one lets nobody in; was its file or variable read?";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // The caller's thread allocates here, but for the server.
    engine::labelled(|| start(addr, config))
}

fn start(addr: impl ToSocketAddrs, config: Config) -> io::Result<Server> {
    let listener = listen::bind(addr, config.allow_remote)?;
    let address = listener.local_addr()?;
    let engine = Engine::start()?;
    let link = engine.link();
    let handler = Handler::linked(config, Some(link.clone()));
    let listener = link.within(|| TcpListener::from_std(listener))?;
    link.spawn(connection::accept(listener, handler));
    Ok(Server { engine: Some(engine), address })
}

impl Server {
    /// Returns the address on which the server listens. If the given port was 0, this has the port that the system
    /// chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server: closes connections, abandons captures, and waits for the server's threads to end, for five
    /// seconds at most. Blocks, so it must not be called on a thread of an async runtime. Does nothing in a forked
    /// child.
    ///
    /// A thread that searches names (`rtprof-symbols`) belongs to the process and not to the server. It ends when its
    /// search is done.
    pub fn shutdown(mut self) {
        if let Some(engine) = self.engine.take() {
            engine.shut_down();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.detach();
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish()
    }
}
