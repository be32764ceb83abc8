//! A saved frame, from which the stack can be walked later, also by another thread.
//!
//! A thread that is about to sleep need not copy its stack: the stack stays where it is. Three registers of a frame
//! that outlives the sleep are enough to walk it from outside, and saving them takes a nanosecond.

use super::bounds::{self, Bounds};
use super::registers::{Registers, registers};
use super::{MAX_STACK, NO_END, finish, unwound, walked};

/// The registers of a function at one instruction. As long as that function has not returned, the stack from its frame
/// outwards does not change, whatever it calls: the return address and the caller's registers that it has saved stay,
/// and the unwind tables say for this instruction where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedFrame {
    pub(crate) ip: usize,
    pub(crate) sp: usize,
    pub(crate) fp: usize,
}

impl SavedFrame {
    /// Saves the frame of the function that this is inlined into. Safe to call in a hook.
    #[inline(always)]
    pub fn here() -> Self {
        let Registers { ip, sp, fp, .. } = registers();
        Self { ip, sp, fp }
    }

    /// Returns the end of the current thread's stack, if the frame lies on it and the end is already known; else 0.
    /// Safe to call in a hook.
    #[inline]
    pub(crate) fn end_of_stack(self) -> usize {
        bounds::own_stack_at(self.sp).map_or(0, |stack| stack.high)
    }

    /// Captures the stack from this frame into `frames`, and returns its depth: the saved instruction, in the form of a
    /// return address, and all return addresses outwards. `end` is the result of [`end_of_stack`](Self::end_of_stack)
    /// in the thread that owns the stack; where it is 0, the kernel is asked about each page.
    ///
    /// # Safety
    /// The function of the saved frame does not return during the call.
    pub(crate) unsafe fn capture(self, end: usize, frames: &mut [usize; MAX_STACK]) -> usize {
        let registers = Registers {
            ip: self.ip,
            sp: self.sp,
            fp: self.fp,
            // The return address is in the link register only in a function that calls no other.
            #[cfg(target_arch = "aarch64")]
            lr: 0,
        };
        let stack = if end == 0 { Bounds::foreign(self.sp) } else { Bounds::new(self.sp, end) };
        let mut callers = [0; MAX_STACK];
        // Where the end is not known, a frame pointer with another value would lead into memory above the stack.
        let depth = match end {
            0 => unwound(registers, stack, NO_END, &mut callers),
            _ => walked(registers, stack, NO_END, &mut callers),
        };
        let depth = finish(&mut callers, depth).min(MAX_STACK - 1);
        frames[0] = self.ip;
        frames[1..=depth].copy_from_slice(&callers[..depth]);
        depth + 1
    }
}
