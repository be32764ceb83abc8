//! The goroutine profile: threads that wait, run, begin and end.

mod asked;
mod forks;
mod names;
mod others;
mod signals;
mod silent;
mod storm;
mod truth;
mod waits;
