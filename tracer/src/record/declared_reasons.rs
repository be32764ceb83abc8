//! The wait reasons that the program has announced for the stacks at which a poll has suspended.

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::task::{KeptStack, MAX_BRANCHES};

/// The number of a reason, or 0, for each stack. In a record it occupies the upper bits of the argument that holds the
/// poll's own reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeclaredReasons(u32);

/// Bits of one reason.
const BITS: u32 = 5;
const _: () = assert!(MAX_BRANCHES as u32 * BITS <= u32::BITS && (WaitReason::Await as u32) < 1 << BITS);

/// Bits of the argument that hold the reason of the whole poll.
const REASON_BITS: u32 = 8;

impl DeclaredReasons {
    /// No reason was announced.
    pub const NOTHING: Self = Self(0);

    #[inline]
    pub(crate) fn of(stacks: [Option<KeptStack>; MAX_BRANCHES]) -> Self {
        let mut declared = Self::NOTHING;
        for (at, stack) in stacks.into_iter().enumerate() {
            let Some(stack) = stack else { break };
            if let Some(reason) = stack.declared_reason() {
                declared = declared.and(at, reason);
            }
        }
        declared
    }

    /// Adds the reason of the stack at index `at`.
    pub fn and(self, at: usize, reason: WaitReason) -> Self {
        Self(self.0 | (reason as u32) << (at as u32 * BITS))
    }

    /// Returns the announced reason of the stack at index `at`.
    #[inline]
    pub fn at(self, at: usize) -> Option<WaitReason> {
        WaitReason::from_number((self.0 >> (at as u32 * BITS)) as u8 & ((1 << BITS) - 1))
    }

    #[inline]
    pub(crate) fn beside(self, reason: WaitReason) -> u64 {
        u64::from(self.0) << REASON_BITS | reason as u64
    }

    pub(crate) fn from_argument(argument: u64) -> Self {
        Self((argument >> REASON_BITS) as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_of_each_stack() {
        let declared = DeclaredReasons::NOTHING.and(0, WaitReason::Net).and(4, WaitReason::Await);
        let argument = declared.beside(WaitReason::Sync);
        assert_eq!(WaitReason::from_number(argument as u8), Some(WaitReason::Sync));
        let read = DeclaredReasons::from_argument(argument);
        let reasons: Vec<_> = (0..MAX_BRANCHES).map(|at| read.at(at)).collect();
        assert_eq!(reasons, [Some(WaitReason::Net), None, None, None, Some(WaitReason::Await)]);
    }
}
