//! Locks, channels and other places to wait, whose waits show up in the `block` and `mutex` profiles. Go: package
//! `sync`, and channels.

pub use rtprof_hooks::sync::*;
