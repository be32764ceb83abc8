//! A mark in the frame of a function, by which later code of the thread finds out whether that function is still on the
//! stack.
//!
//! Problem: C programs leave functions without a return. A handler of `SIGALRM` that calls `siglongjmp` is C's usual way
//! to a timeout, and what a function has noted at its beginning is never cleared at its end. Scheme: the function keeps
//! a mark in its frame, and notes its address. Code that finds the note compares that address with that of a mark in its own
//! frame:
//!
//! ```text
//!                        ┌───────────────────┐
//!                        │ the program       │ ◄── above the mark: the function was left
//!   the stack grows      ├───────────────────┤
//!   downwards            │ function   [mark] │
//!                        ├───────────────────┤
//!                        │ signal handler    │ ◄── below the mark, which has its value: called within the function
//!                        └───────────────────┘ ◄── below the mark, which was overwritten: the function was left
//! ```
//!
//! A mark that was not overwritten, because it lies in a part of another function's frame that is not in use, does not
//! prove that its function is still there: then the stack is walked up to the frame.
//!
//! A signal handler on an alternate stack may have interrupted the function wherever it runs.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;

use super::registers::{Registers, registers};
use super::{bounds, kernel, unwind};
use crate::signal::alternate_stack;

/// A mark in the frame of a function. [`set`](FrameMark::set) and [`clear`](FrameMark::clear) are called by that function,
/// which does not move the mark in between.
#[derive(Debug)]
pub struct FrameMark(UnsafeCell<MaybeUninit<Words>>);

/// A mark as it is in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Words {
    /// The address of the mark with [`KEY`], or 0.
    key: usize,
    /// The registers of the function.
    sp: usize,
    ip: usize,
}

/// The bits in which the first word of a mark differs from its address.
const KEY: usize = 0x5a3c_96e1_c7d2_4b85;
/// More than the size of a function with a mark.
const LARGEST_FUNCTION: usize = 4 << 10;
/// The largest distance between two frames on a stack whose bounds are not known.
const LARGEST_STACK: usize = 8 << 20;

impl FrameMark {
    /// Makes a mark that is not set.
    #[allow(clippy::new_without_default, reason = "a mark is a local, never a part of another value")]
    #[inline(always)]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Sets the mark of the function that this is inlined into, and returns its address, which is not 0, for
    /// [`is_within`](FrameMark::is_within). Safe to call in a hook.
    #[inline(always)]
    pub fn set(&self) -> usize {
        let address = self.0.get().expose_provenance();
        let Registers { sp, ip, .. } = registers();
        // Volatile, because it is read by its address. SAFETY: the words are this mark's, and only its thread uses them.
        unsafe { self.words().write_volatile(Words { key: address ^ KEY, sp, ip }) };
        address
    }

    /// Returns whether the function with this mark was called within the function with the mark at `address`, which the
    /// current thread has set. `None` if that is not certain, because the stack cannot be walked up to the mark. Neither
    /// function is inlined into the other. Safe to call in a hook.
    #[cold]
    pub fn is_within(&self, address: usize) -> Option<bool> {
        let here = self.0.get().addr();
        let alternate = alternate_stack::in_use();
        if alternate.as_ref().is_some_and(|stack| !stack.contains(&address)) {
            return Some(true);
        }
        let is_own = |at| !bounds::of_stack_at(at).is_foreign;
        if here >= address || is_own(here) != is_own(address) || !is_mapped(here, address) {
            return Some(false);
        }
        // SAFETY: the mark is mapped. Other functions of this thread may have written anything to it.
        let found = unsafe { ptr::with_exposed_provenance::<Words>(address).read_volatile() };
        let has_its_value = found.key == address ^ KEY && found.sp <= address;
        if has_its_value && here < found.sp { found.is_on_stack() } else { Some(false) }
    }

    /// Clears the mark, at the end of the function: its memory may keep the value for long. Safe to call in a hook.
    #[inline(always)]
    pub fn clear(&self) {
        // SAFETY: as in `set`.
        unsafe { (&raw mut (*self.words()).key).write_volatile(0) };
    }

    #[inline(always)]
    const fn words(&self) -> *mut Words {
        self.0.get().cast()
    }
}

impl Words {
    /// Whether a walk from here passes the frame. A walk that does not get so far proves nothing.
    fn is_on_stack(self) -> Option<bool> {
        let registers = registers();
        let found = unwind::find_frame(registers, bounds::of_stack_at(registers.sp), self.sp)?;
        // The function is where it has made a call.
        Some(found.is_some_and(|ip| ip.abs_diff(self.ip) < LARGEST_FUNCTION))
    }
}

/// Whether the mark at `address`, which was on the stack that `here` is on, can still be read. The memory of a stack that
/// the program has made may be unmapped.
fn is_mapped(here: usize, address: usize) -> bool {
    if bounds::own_stack_at(address).is_some() {
        return true;
    }
    address - here < LARGEST_STACK && kernel::is_readable(address)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Calls `f` with the address of a mark.
    #[inline(never)]
    fn marked<R>(f: impl FnOnce(usize) -> R) -> R {
        let mark = FrameMark::new();
        let result = f(mark.set());
        mark.clear();
        result
    }

    /// As [`marked`], but leaves the mark as a jump would.
    #[inline(never)]
    fn left() -> usize {
        let mark = FrameMark::new();
        std::hint::black_box(mark.set())
    }

    #[inline(never)]
    fn deep<R>(depth: usize, f: &dyn Fn() -> R) -> R {
        let room = std::hint::black_box([0_u8; 100]);
        let result = if depth == 0 { f() } else { deep(depth - 1, f) };
        std::hint::black_box(room);
        result
    }

    // Not inlined: a function's marks are compared with those of the functions that it calls.
    #[inline(never)]
    fn is_on_stack(address: usize) -> bool {
        FrameMark::new().is_within(address).expect("these functions have tables")
    }

    #[test]
    fn a_function_is_on_the_stack_until_it_is_left() {
        crate::init::open();
        let check = || {
            assert!(marked(is_on_stack), "at once");
            assert!(marked(|at| deep(50, &|| is_on_stack(at))), "deeper");
            let at = deep(5, &left);
            assert!(!is_on_stack(at), "above it");
            assert!(!deep(20, &|| is_on_stack(at)), "below it");
            let at = deep(50, &|| marked(|at| at));
            assert!(!deep(10, &|| is_on_stack(at)), "after its end");
        };
        check();
        std::thread::spawn(check).join().unwrap();
    }
}
