//! A server of its own, for programs that have none.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use tokio::net::TcpListener;

use crate::Config;
use crate::connection;
use crate::engine::{self, Engine};
use crate::handler::Handler;
use crate::listen;

/// A running server. Dropped, it runs on for as long as the process does; [`shutdown`](Self::shutdown) ends it.
pub struct Server {
    engine: Option<Engine>,
    address: SocketAddr,
}

/// Serves `/debug/pprof/` on a loopback address, under the default [`Config`], on a thread of its own. As Go programs
/// do with `go http.ListenAndServe("localhost:6060", nil)`.
///
/// # Errors
/// The address is not understood, is taken, is not this machine's, or can be reached from other machines
/// ([`Config::allow_remote`]); there is no thread to be had.
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Server> {
    serve_with(addr, Config::default())
}

/// As [`serve`], under this configuration.
///
/// # Errors
/// As [`serve`]; and the token is empty.
pub fn serve_with(addr: impl ToSocketAddrs, config: Config) -> io::Result<Server> {
    if config.token.as_deref().is_some_and(|token| token.trim().is_empty()) {
        let message =
            "Config::token is empty, and an empty one lets nobody in; was its file or variable read?";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // On the caller's thread, but for the server.
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
    /// Where it listens: with port 0 in the address, the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server: connections are closed, captures are given up, and its threads are gone when this returns, or after
    /// five seconds. It blocks: not for a thread of an async runtime. In a forked child nothing happens.
    ///
    /// A thread that is finding names (`rtprof-symbols`) belongs to the process and not to the server. It ends when it has
    /// found them.
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
