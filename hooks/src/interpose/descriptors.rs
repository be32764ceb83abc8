//! A table of nonblocking sockets. A long call on a nonblocking socket has worked, and not waited.
//!
//! Asking the kernel would be an additional system call, which the program's sandbox may forbid. So the table learns
//! from results: a nonblocking socket returns `EAGAIN` as soon as there is nothing to do. If a descriptor is closed and
//! its number is given to another socket, the mark stays until a call takes so long that it must have waited. That call
//! is recorded as a system call, and later ones correctly.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// Descriptors from this number on are not in the table.
const MOST: usize = 1 << 16;

/// A bit for each number.
static REFUSE: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

fn word_and_bit(descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((REFUSE.get(number / 64)?, 1 << (number % 64)))
}

/// Whether the descriptor is known to be nonblocking.
pub(super) fn refuses_to_wait(descriptor: c_int) -> bool {
    word_and_bit(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Notes whether the descriptor is nonblocking.
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
