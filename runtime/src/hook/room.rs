//! Whether there is memory for work of ours, in a program whose address space is limited (`RLIMIT_AS`, `ulimit -v`).
//!
//! Problem: the collections that exports are written with end the process when an allocation is refused, and a thread of std
//! does when it gets no signal stack. Scheme: before such work the memory that it may need is asked for in one piece, and given
//! back. That is an estimate, and other threads may take the memory before the work needs it; so what is refused later
//! comes from the workspace, as long as that has room (see [`hook::may_use_workspace`]).
//!
//! Locks: none.

use std::io;

use crate::hook;
use crate::memory::mapping;

/// Less than this is not worth the work.
const LEAST: usize = 1 << 20;

/// Returns how many bytes work of ours may allocate in this process now: `most`, or less if the address space is limited.
pub fn for_work(most: usize) -> usize {
    if !is_limited() {
        return most;
    }
    let _workspace = hook::workspace();
    let mut bytes = most;
    while bytes >= LEAST {
        if Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
            return bytes;
        }
        bytes /= 2;
    }
    0
}

/// Checks that work of ours may allocate this many bytes.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`], with a message for people.
pub fn check_for_work(bytes: usize) -> io::Result<()> {
    if !is_limited() {
        return Ok(());
    }
    let _workspace = hook::workspace();
    match Vec::<u8>::new().try_reserve_exact(bytes) {
        Ok(()) => Ok(()),
        Err(_) => Err(refusal(bytes)),
    }
}

/// Checks that the address space has room for a mapping of this many bytes, as a thread's stack.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`], with a message for people.
pub fn check_for_mapping(bytes: usize) -> io::Result<()> {
    if !is_limited() {
        return Ok(());
    }
    let start = mapping::map(bytes).ok_or_else(|| refusal(bytes))?;
    // SAFETY: the range was just mapped, and nothing uses it.
    unsafe { mapping::unmap(start, bytes) };
    Ok(())
}

fn is_limited() -> bool {
    mapping::address_space_limit() != usize::MAX
}

fn refusal(bytes: usize) -> io::Error {
    let megabytes = bytes.div_ceil(1 << 20);
    let message = format!(
        "the profiler needs {megabytes} MiB, which the limit of the address space (RLIMIT_AS) does not leave"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}
