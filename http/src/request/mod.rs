//! What a request asks for: its path, its parameters, and whether it may.
//!
//! Parsing runs on the thread of the connection or of the program's server, so nothing here waits or captures.

pub(crate) mod coding;
pub(crate) mod cpu;
pub(crate) mod guard;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod profile;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod trace;
