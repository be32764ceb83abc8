//! A standalone server, for programs that have no server.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use mio::net::TcpListener;

use crate::Config;
use crate::handler::Handler;
use crate::serve::connection;
use crate::serve::listen;
use crate::serve::reactor::Reactor;
use crate::work::engine::{self, Engine};

/// A running server. A dropped server runs on for as long as the process does; [`shutdown`](Self::shutdown) ends it.
/// The server also ends if the program closes descriptors that it has not opened; then a message on standard error says
/// so.
pub struct Server {
    running: Option<(Engine, Reactor)>,
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
    let (reactor, run) = Reactor::new()?;
    let listener = reactor.register(TcpListener::from_std(listener))?;
    let engine = Engine::start()?;
    let link = engine.link();
    link.spawn_thread(run)?;
    let handler = Handler::linked(config, Some(link.clone()));
    link.spawn(connection::accept(listener, reactor.clone(), handler));
    Ok(Server { running: Some((engine, reactor)), address })
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
        if self.running.as_ref().is_some_and(|(engine, _)| engine.is_here())
            && let Some((engine, reactor)) = self.running.take()
        {
            reactor.end();
            engine.shut_down();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((engine, reactor)) = self.running.take() {
            engine.detach();
            std::mem::forget(reactor);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish()
    }
}
