//! The outer end of a stack: `main` or a thread's first function.
//!
//! Problem: the end of a frame-pointer walk proves little. The walk ends at the start of a thread, where the C library
//! keeps no frame pointer, and it ends in the same way in the middle of a stack, below `qsort` or any other C function
//! that uses the register for another value. A stack that silently starts in the middle is worse than none.
//!
//! Scheme: an end is trusted only when its address is known to be an end. The first walk that ends at a new address is
//! repeated by the unwind tables; if these find nothing beyond it but the C library's own start-up code, the address is
//! remembered, else the tables' stack is used. A program has two or three of these addresses (the call of `main`, the
//! start of threads).
//!
//! Start-up frames (`__libc_start_main`, `start_thread`, `clone3`, `_start`) are cut off in both ways of walking, so
//! that both give the same stack.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::modules;

/// The maximum number of start-up frames beyond the last frame with a frame pointer.
const STARTUP_FRAMES: usize = 3;
/// Bytes from the entry point that count as `_start`.
const ENTRY_CODE: usize = 64;

static TRUSTED: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];
/// The code of the C library and of the dynamic loader: `[start, limit, start, limit]`; zero in a static program, where
/// it cannot be distinguished from other code.
static SYSTEM: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static ENTRY: AtomicUsize = AtomicUsize::new(0);
static MAIN_STACK: AtomicUsize = AtomicUsize::new(0);

/// Finds the code of the C library. Must not be called in a hook.
pub(crate) fn open() {
    #[cfg(rtprof_supported)]
    {
        // SAFETY: getauxval only reads the auxiliary vector, which the kernel passed to the process.
        let (entry, loader, random) = unsafe {
            (
                libc::getauxval(libc::AT_ENTRY),
                libc::getauxval(libc::AT_BASE),
                libc::getauxval(libc::AT_RANDOM),
            )
        };
        ENTRY.store(entry as usize, Ordering::Relaxed);
        // The kernel places these bytes above the first frame of the main thread.
        MAIN_STACK.store(random as usize, Ordering::Relaxed);
        let libc = modules::find(libc::abort as *const () as usize);
        let loader = (loader != 0).then(|| modules::loaded_at(loader as usize)).flatten();
        for (i, module) in [libc, loader].into_iter().enumerate() {
            if let Some(module) = module.filter(|m| !m.is_main_executable) {
                SYSTEM[2 * i].store(module.start, Ordering::Relaxed);
                SYSTEM[2 * i + 1].store(module.limit, Ordering::Relaxed);
            }
        }
    }
}

/// Returns an address on the main thread's stack; 0 before [`open`].
pub(super) fn main_stack() -> usize {
    MAIN_STACK.load(Ordering::Relaxed)
}

fn is_startup(address: usize) -> bool {
    let entry = ENTRY.load(Ordering::Relaxed);
    if (entry..entry + ENTRY_CODE).contains(&address) {
        return true;
    }
    SYSTEM
        .chunks_exact(2)
        .any(|range| (range[0].load(Ordering::Relaxed)..range[1].load(Ordering::Relaxed)).contains(&address))
}

/// Cuts the start-up frames off the outer end and returns the new depth. A stack of start-up frames only is not
/// changed.
#[inline]
pub(super) fn trim(stack: &[usize]) -> usize {
    let mut depth = stack.len();
    while depth > 0 && is_startup(stack[depth - 1]) {
        depth -= 1;
    }
    if depth == 0 { stack.len() } else { depth }
}

/// Returns whether a frame-pointer walk that ended at this return address is known to be complete.
#[inline]
pub(super) fn is_trusted(end: usize) -> bool {
    for slot in &TRUSTED {
        match slot.load(Ordering::Relaxed) {
            0 => return false,
            known if known == end => return true,
            _ => {}
        }
    }
    false
}

/// Compares a frame-pointer walk's end with the stack from the unwind tables. Remembers the end and returns `true` if
/// the tables find only start-up code beyond it.
pub(super) fn confirm(end: usize, unwound: &[usize]) -> bool {
    let Some(at) = unwound.iter().rposition(|&frame| frame == end) else {
        return false;
    };
    let beyond = &unwound[at + 1..];
    let is_static = SYSTEM[0].load(Ordering::Relaxed) == 0;
    if beyond.len() > STARTUP_FRAMES || !(is_static || beyond.iter().all(|&frame| is_startup(frame))) {
        return false;
    }
    for slot in &TRUSTED {
        match slot.compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break,
            Err(known) if known == end => break,
            Err(_) => {}
        }
    }
    true
}
