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
