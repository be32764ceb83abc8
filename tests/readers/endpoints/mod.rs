//! /debug/pprof: answers over a server's socket and from a handler, also to hostile clients.

mod captures;
mod cpu;
mod delta;
mod flight;
mod forms;
mod handle;
mod hostile_clients;
mod hostile_life;
mod hostile_requests;
mod parts;
mod trace;

use std::net::SocketAddr;

use rtprof::http::serve;
use test_support::web;

/// Starts a server, which runs on.
fn start() -> SocketAddr {
    serve("127.0.0.1:0").expect("a port is free").local_addr()
}

/// Returns the text of an answer that is no refusal.
fn text(address: SocketAddr, target: &str) -> String {
    let answer = web::get(address, &format!("/debug/pprof/{target}"));
    assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
    answer.text().to_owned()
}
