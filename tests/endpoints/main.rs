//! /debug/pprof: answers over a server's socket and from a handler, also to hostile clients.
#![cfg(feature = "http")]

mod captures;
mod cpu;
mod delta;
mod flight;
mod forms;
mod handle;
mod hostile_clients;
mod hostile_life;
mod hostile_requests;
#[path = "../support/mod.rs"]
mod support;
mod trace;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
