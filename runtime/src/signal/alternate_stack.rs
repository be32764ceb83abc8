//! Room for our signals on alternate stacks, on which a program's handlers run (`SA_ONSTACK`).
//!
//! Problem: our handlers run there too, because the interrupted stack may be a coroutine's, which is small. The kernel
//! writes a thread's registers onto the stack first: 3.4 KiB with AVX-512, 11 KiB with AMX. std gives each thread
//! 8 KiB, or what one such frame needs. Where a signal of ours interrupts a handler of the program, a second frame
//! follows on the same stack. It does not fit, and the kernel ends the process.
//!
//! Scheme: a handler of the program that runs on an alternate stack has our signal in its mask, so that our signal waits
//! until the handler has returned. And a thread whose alternate stack has no room for a single signal of ours gets a larger
//! one when it is registered.
//!
//! Problem: where another thread than the main one calls `std::process::exit`, std unmaps the alternate stack of the main
//! thread, which still has it (rust#161018). The next signal whose handler runs there ends the process.
//!
//! Scheme: the main thread gets a stack of ours when rtprof begins in it: in the constructor of the allocator or of the
//! interposed functions, before std has made one, and std leaves a thread alone that has one. Else it is replaced when the
//! thread is registered. This can go when the oldest supported std has the mend.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::zeroed;
use core::ops::Range;
use core::ptr::{self, NonNull};

use crate::hook::errno;
use crate::memory::mapping::{self, PAGE};
use crate::signal::disposition::{change, disposition};
use crate::stack::is_readable;
use crate::thread::kernel_thread;

/// What our handlers use of an alternate stack besides the kernel's frame, at most: a debug build. They go on elsewhere
/// ([`crate::stack::spare`]).
const HANDLER: usize = 4 << 10;
/// The size of the kernel's frame where it does not say.
const FRAME: usize = 4 << 10;

/// The size of the main thread's. Without any alternate stack, the program's handlers would have had its normal stack.
const OF_MAIN: usize = 64 << 10;

/// Adds `ours`, a signal that has our handler, to the masks of the program's handlers that run on alternate stacks. A handler
/// that the program installs later is seen by the next call.
pub fn wait_for_handlers(ours: c_int) {
    let with_ours = |mut action: libc::sigaction| {
        if is_in_the_way(&action, ours) {
            // SAFETY: the set is a local.
            unsafe { libc::sigaddset(&raw mut action.sa_mask, ours) };
        }
        action
    };
    for signal in (1..=libc::SIGRTMAX()).filter(|&signal| signal != ours) {
        if let Some(action) = disposition(signal).filter(|action| is_in_the_way(action, ours)) {
            change(signal, action, action, with_ours);
        }
    }
}

/// Whether our signal is to wait for a handler on an alternate stack, and does not yet. It does not wait for a handler that
/// blocks nothing itself (`SA_NODEFER`): such a handler is mostly left by a jump that does not restore the mask, and the thread
/// would block our signal for ever, and with it the programs that it starts.
fn is_in_the_way(action: &libc::sigaction, ours: c_int) -> bool {
    let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    // SAFETY: reads a set.
    is_handler
        && action.sa_flags & (libc::SA_ONSTACK | libc::SA_NODEFER) == libc::SA_ONSTACK
        && unsafe { libc::sigismember(&action.sa_mask, ours) } == 0
}

/// An alternate stack that was made here.
#[derive(Clone, Copy)]
struct Made {
    start: NonNull<u8>,
    len: usize,
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static MADE: Cell<Option<Made>> = const { Cell::new(None) };
}

/// Returns the alternate stack of the current thread.
fn current() -> Option<libc::stack_t> {
    // SAFETY: an all-zero structure is valid, and the call writes to it.
    unsafe {
        let mut stack: libc::stack_t = zeroed();
        (libc::sigaltstack(ptr::null(), &raw mut stack) == 0).then_some(stack)
    }
}

/// Returns the addresses of the current thread's alternate stack, if the caller runs on it. Safe to call in a hook.
pub(crate) fn in_use() -> Option<Range<usize>> {
    let stack = errno::kept(current)?;
    let begin = stack.ss_sp.addr();
    (stack.ss_flags & libc::SS_ONSTACK != 0).then(|| begin..begin.saturating_add(stack.ss_size))
}

/// Returns the size of the kernel's frame of a signal, at most.
fn frame() -> usize {
    // SAFETY: reads what the kernel has passed to the process.
    match unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize {
        0 => FRAME,
        size => size,
    }
}

/// Gives the current thread a larger alternate stack, until [`end`], if its own has no room for a signal of ours, or if it
/// is the main thread and has std's or none.
pub(crate) fn make_room() {
    errno::kept(|| make_room_for(frame()));
}

fn make_room_for(frame: usize) {
    let Some(stack) = current() else { return };
    // std makes one of this size later, in a thread that has none. The program may have made one of the same size; it is
    // replaced too.
    let of_std = libc::SIGSTKSZ.max(frame);
    let size = if stack.ss_flags & libc::SS_DISABLE == 0 { stack.ss_size } else { of_std };
    let is_main = size == of_std && kernel_thread::is_main();
    if size >= frame + HANDLER && !is_main || stack.ss_flags & libc::SS_ONSTACK != 0 || MADE.get().is_some() {
        return;
    }
    // What the program's own handlers have there, and a frame of ours. The lowest page stays inaccessible.
    let least = if is_main { OF_MAIN } else { 0 };
    let len = PAGE + (size.max(frame) + frame + HANDLER).max(least).next_multiple_of(PAGE);
    let Some(start) = mapping::reserve(len) else { return };
    // SAFETY: the reservation was made above, and is longer than a page.
    let low = unsafe { start.add(PAGE) };
    let larger = libc::stack_t { ss_sp: low.as_ptr().cast(), ss_flags: 0, ss_size: len - PAGE };
    // SAFETY: the part is in the reservation made above; the stack lives until `end`, which takes it from the thread first.
    let is_in_place = unsafe {
        mapping::commit(low, len - PAGE) && libc::sigaltstack(&raw const larger, ptr::null_mut()) == 0
    };
    if is_in_place {
        // SAFETY: the lowest words of the stack; no handler runs on it yet.
        unsafe { low.cast::<usize>().write(mark(start)) };
        MADE.set(Some(Made { start, len }));
    } else {
        // SAFETY: the mapping was made above, and nothing uses it.
        unsafe { mapping::unmap(start, len) };
    }
}

/// The lowest word of a stack that was made here.
fn mark(start: NonNull<u8>) -> usize {
    start.addr().get() ^ 0x6e1f_94d3_2b58_a7c5
}

/// Whether the memory is still that of a stack that was made here. Code that has taken the stack from the thread may have
/// unmapped it (sanitizers do so at the end of a thread), and another mapping may have its address.
fn is_still_there(made: Made) -> bool {
    let low = made.start.addr().get() + PAGE;
    // SAFETY: the word can be read.
    is_readable(low)
        && unsafe { ptr::with_exposed_provenance::<usize>(low).read_volatile() } == mark(made.start)
}

/// Takes the stack that was made from the current thread, which ends.
pub(crate) fn end() {
    let Some(made) = MADE.take() else { return };
    errno::kept(|| {
        let Some(stack) = current() else { return };
        let is_ours = stack.ss_sp.addr() == made.start.addr().get() + PAGE;
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // A thread that ends in a handler on this stack keeps it.
        // SAFETY: the thread has no alternate stack afterwards; the structure is a local.
        if is_ours && unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) } != 0 {
            return;
        }
        if is_ours || is_still_there(made) {
            // SAFETY: the mapping was made by `make_room_for`, and no handler runs on it any more.
            unsafe { mapping::unmap(made.start, made.len) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size() -> usize {
        current().unwrap().ss_size
    }

    #[test]
    fn a_small_stack_is_replaced_until_the_thread_ends() {
        std::thread::spawn(|| {
            let before = size();
            assert!(before >= libc::SIGSTKSZ, "std has made one");
            make_room_for(before - HANDLER);
            assert_eq!(size(), before, "it suffices");
            // The kernel's frame with AMX.
            make_room_for(11 << 10);
            assert!(size() >= before + (11 << 10) + HANDLER, "{} bytes", size());
            let made = MADE.get().unwrap();
            // SAFETY: the stack is writable, and no handler runs.
            unsafe { ptr::write_bytes(made.start.as_ptr().add(PAGE), 1, made.len - PAGE) };
            make_room_for(64 << 10);
            assert_eq!(MADE.get().unwrap().start, made.start, "once");
            end();
            assert!(current().unwrap().ss_flags & libc::SS_DISABLE != 0);
            assert!(MADE.get().is_none());
        })
        .join()
        .unwrap();
    }

    extern "C" fn nothing(_: c_int) {}

    #[test]
    fn our_signal_waits_for_handlers_on_alternate_stacks() {
        let (with, without) = (libc::SIGUSR1, libc::SIGUSR2);
        let install = |signal, flags| {
            // SAFETY: an all-zero structure is valid, and the handler does nothing.
            unsafe {
                let mut action: libc::sigaction = zeroed();
                action.sa_sigaction = nothing as *const () as usize;
                action.sa_flags = flags;
                assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
            }
        };
        // SAFETY: reads sets.
        let has = |signal| unsafe { libc::sigismember(&disposition(signal).unwrap().sa_mask, libc::SIGURG) };
        install(with, libc::SA_ONSTACK | libc::SA_NODEFER);
        wait_for_handlers(libc::SIGURG);
        assert_eq!(has(with), 0, "it blocks nothing");
        install(with, libc::SA_ONSTACK | libc::SA_RESTART);
        install(without, libc::SA_RESTART);
        wait_for_handlers(libc::SIGURG);
        assert_eq!((has(with), has(without)), (1, 0));
        let action = disposition(with).unwrap();
        assert_eq!(action.sa_sigaction, nothing as *const () as usize);
        assert_eq!(action.sa_flags & !0x0400_0000, libc::SA_ONSTACK | libc::SA_RESTART);
    }
}
