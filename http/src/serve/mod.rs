//! A standalone server: its listener, its connections, and the readiness of their sockets.

mod bell;
mod connection;
mod descriptor;
pub(crate) mod listen;
mod reactor;
pub(crate) mod server;
mod socket;
mod timer;
