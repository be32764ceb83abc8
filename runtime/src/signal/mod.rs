//! Signals and the stacks of their handlers, shared with the program's.

#[cfg(rtprof_supported)]
pub mod alternate_stack;
#[cfg(rtprof_supported)]
pub mod disposition;
#[cfg(rtprof_supported)]
pub mod shared_signal;
