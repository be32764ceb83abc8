//! Programs that do not use rtprof's API: their locks, channels, threads and sleeps, as recorded in functions of the C
//! library.
#![cfg(feature = "pprof")]

mod budget;
#[cfg(not(target_feature = "crt-static"))]
mod c_kinds;
#[cfg(not(target_feature = "crt-static"))]
mod c_lock;
#[cfg(not(target_feature = "crt-static"))]
mod c_locks;
mod calls;
mod hostile;
mod interop;
mod interrupted;
mod left;
mod locks;
mod other_libraries;
mod programs;
mod results;
mod sandboxed;
mod scenes;
mod threads;
mod traces;
mod whose_frames;

use test_support::inner::{INNER, Inner};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Inner> = rtprof::ProfAlloc::new(INNER);
