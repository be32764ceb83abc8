//! Initialisation before the first sample: done once, outside every hook. See [`rtprof_runtime::init`].

use crate::{contention, mem};

/// Calls [`open`] in a constructor: before the program's `main`, or when a library is loaded.
pub fn open_at_start() {
    rtprof_runtime::init::open_at_start();
    open();
}

/// Initialises all profiles. Idempotent. Must not be called in a hook.
pub fn open() {
    mem::open();
    contention::open();
}
