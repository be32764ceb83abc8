//! Short work that limits in nanoseconds are compared with.
//!
//! A limit in nanoseconds holds for one machine while it is idle. On another virtual machine of the same kind, whose
//! neighbours use its memory and the other half of its cores, everything may take twice as long: one build met 102 of
//! 135 limits on one machine and 71 of 128 on another. So each program of these benchmarks measures a yardstick in the
//! rounds in which it does its work, and a limit allows a number of yardsticks.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::hint::black_box;
use std::os::unix::process::parent_id;

use crate::processor::Stopwatch;

/// Work whose cost comes from one part of the machine.
///
/// An uncontended lock is none: its atomic operations take the same time where loads take half as long again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yardstick {
    /// The system's allocator makes an object of 64 bytes and frees it: code with many branches and loads.
    Pair,
    /// A list of 32 frames is followed, and the address in each is kept: loads that wait for each other.
    Walk,
    /// The kernel is asked for the parent's process id: the way into the kernel and back.
    SystemCall,
}

impl Yardstick {
    const ALL: [Self; 3] = [Self::Pair, Self::Walk, Self::SystemCall];

    /// Returns the word for a request.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Walk => "walk",
            Self::SystemCall => "system-call",
        }
    }

    /// Parses the word that [`Yardstick::word`] returns.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|yardstick| yardstick.word() == word)
    }

    /// Returns what several of them are called in a table.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Pair => "pairs",
            Self::Walk => "walks",
            Self::SystemCall => "system calls",
        }
    }

    /// Returns the nanoseconds that it takes where the limits in nanoseconds were set: on an idle virtual machine with
    /// two cores of an Intel Xeon, Linux 6.18, glibc 2.36.
    pub const fn reference(self) -> f64 {
        match self {
            Self::Pair => 6.0,
            Self::Walk => 21.5,
            Self::SystemCall => 77.0,
        }
    }

    /// Measures it for about a tenth of a millisecond.
    pub fn nanos(self) -> f64 {
        match self {
            Self::Pair => timed(16_000, pair),
            Self::Walk => {
                let stack = stack();
                timed(5_000, || walk(black_box(&stack)))
            }
            Self::SystemCall => timed(1_000, || {
                black_box(parent_id());
            }),
        }
    }
}

/// Returns the nanoseconds for one call of `work`, after a warm-up.
#[inline(always)]
fn timed(count: usize, work: impl Fn()) -> f64 {
    (0..count / 8).for_each(|_| work());
    let watch = Stopwatch::start();
    (0..count).for_each(|_| work());
    watch.nanos_each(count)
}

/// The system's allocator, also in a program with another one.
#[inline(always)]
fn pair() {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the layout is not zero-sized.
    let object = black_box(unsafe { System.alloc(layout) });
    if object.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the object comes from this allocator with this layout, and is freed once.
    unsafe { System.dealloc(object, layout) };
}

/// A frame as a walk by frame pointers sees it. On a stack, too, frames lie in different cache lines.
#[repr(align(64))]
struct Frame {
    /// The index of the caller's frame; that of the last frame leads out of the stack.
    caller: usize,
    return_address: usize,
}

const FRAMES: usize = 32;

fn stack() -> [Frame; FRAMES] {
    std::array::from_fn(|index| Frame { caller: index + 1, return_address: index * 16 })
}

fn walk(stack: &[Frame; FRAMES]) {
    let mut found = [0; FRAMES];
    let (mut at, mut count) = (0, 0);
    while let Some(frame) = stack.get(at)
        && count < FRAMES
    {
        found[count] = frame.return_address;
        count += 1;
        at = frame.caller;
    }
    black_box(&found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_word_and_takes_time() {
        for yardstick in Yardstick::ALL {
            assert_eq!(Yardstick::parse(yardstick.word()), Some(yardstick));
            assert!(yardstick.nanos() > 0.1, "{yardstick:?} is optimized away");
        }
        assert_eq!(Yardstick::parse("ell"), None);
    }
}
