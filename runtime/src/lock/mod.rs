//! Locks for the work outside hooks, and one for hooks, that a forked child can take.

pub mod fork_lock;
pub mod fork_safe;
pub mod holder_lock;
