//! Which sockets refuse to wait: what a call on one of those takes long for is its work.
//!
//! Asking the kernel would be a system call of ours, which a program that has restricted itself may not be allowed. So it is learnt
//! from what calls return: a socket that does not wait says so (`EAGAIN`) as soon as there is nothing to be done. A number that was
//! closed and is given to another socket keeps its mark until a call takes so long that it must have waited: that one is taken for a
//! system call, and the next ones for what they are.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// Numbers from here on are not known.
const MOST: usize = 1 << 16;

/// A bit for each number.
static REFUSE: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

fn word_and_bit(descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((REFUSE.get(number / 64)?, 1 << (number % 64)))
}

/// Whether calls on it refuse to wait, as far as is known.
pub(super) fn refuses_to_wait(descriptor: c_int) -> bool {
    word_and_bit(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Calls on it refuse to wait, or do not.
pub(super) fn note(descriptor: c_int, refuses: bool) {
    let Some((word, bit)) = word_and_bit(descriptor) else { return };
    let is_noted = word.load(Ordering::Relaxed) & bit != 0;
    if refuses && !is_noted {
        word.fetch_or(bit, Ordering::Relaxed);
    } else if !refuses && is_noted {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_mark_of_its_own() {
        let all = [60_000, 60_001, 65_535];
        for descriptor in all {
            assert!(!refuses_to_wait(descriptor));
            note(descriptor, true);
            note(descriptor, true);
            for other in all {
                assert_eq!(refuses_to_wait(other), other == descriptor);
            }
            note(descriptor, false);
        }
        for unknown in [-1, 65_536, c_int::MAX, c_int::MIN] {
            note(unknown, true);
            assert!(!refuses_to_wait(unknown));
        }
    }
}
