//! What must exist before the first sample: made once, outside every hook. See [`rtprof_runtime::init`].

use crate::{contention, mem};

/// As [`open`], in a constructor: of the program, before `main`, or of a library when it is loaded.
pub fn open_at_start() {
    rtprof_runtime::init::open_at_start();
    open();
}

/// Makes what all profiles need. Idempotent. Not for hooks.
pub fn open() {
    mem::open();
    contention::open();
}
