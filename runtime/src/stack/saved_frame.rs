//! A frame of a stack, to walk the stack from later, also by another thread.
//!
//! A thread that is about to sleep need not keep its stack: the stack stays where it is. Three registers of a frame that
//! outlives the sleep are enough to walk it from outside, and cost a nanosecond.

use super::bounds::{self, Bounds};
use super::{MAX_STACK, Registers, finish, registers, unwound, walked};

/// The registers of a function at one instruction. As long as that function has not returned, the stack from its frame
/// outwards is as it was, whatever it calls: the return address and what it has saved of its caller's registers stay, and
/// the unwind tables say for this instruction where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedFrame {
    pub(crate) ip: usize,
    pub(crate) sp: usize,
    pub(crate) fp: usize,
}

impl SavedFrame {
    /// That of the function which this is inlined into. For hooks.
    #[inline(always)]
    pub fn here() -> Self {
        let Registers { ip, sp, fp, .. } = registers();
        Self { ip, sp, fp }
    }

    /// Where the stack of the current thread ends, if the place lies on it and that is known already; or 0. For hooks.
    #[inline]
    pub(crate) fn end_of_stack(self) -> usize {
        bounds::own_stack_at(self.sp).map_or(0, |stack| stack.high)
    }

    /// Captures the stack at this place into `frames`, and returns its depth: the place itself, as a return address, and
    /// all return addresses outwards. `end` is what [`end_of_stack`](Self::end_of_stack) returned to the thread whose stack
    /// it is; where it is 0, the kernel is asked about each page.
    ///
    /// # Safety
    /// The function that the place is in does not return meanwhile.
    pub(crate) unsafe fn capture(self, end: usize, frames: &mut [usize; MAX_STACK]) -> usize {
        let registers = Registers {
            ip: self.ip,
            sp: self.sp,
            fp: self.fp,
            // In a register only in a function that calls no other.
            #[cfg(target_arch = "aarch64")]
            lr: 0,
        };
        let stack = if end == 0 { Bounds::foreign(self.sp) } else { Bounds::new(self.sp, end) };
        let mut callers = [0; MAX_STACK];
        // Where the end is not known, a frame pointer that holds something else leads into what lies above.
        let depth = match end {
            0 => unwound(registers, stack, &mut callers),
            _ => walked(registers, stack, &mut callers),
        };
        let depth = finish(&mut callers, depth).min(MAX_STACK - 1);
        frames[0] = self.ip;
        frames[1..=depth].copy_from_slice(&callers[..depth]);
        depth + 1
    }
}
