//! Threads that show up in the `threadcreate` profile, and whose joins and parks show up in the `block` profile. Go:
//! the `go` statement.

pub use rtprof_hooks::thread::*;
