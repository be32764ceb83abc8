//! The walk along frame pointers: about 1 ns a frame.
//!
//! Each frame stores its caller's frame pointer, and above it the return address (x86-64 and aarch64 alike). The walk
//! is valid only where every function between here and the thread's start keeps a frame pointer; see [`super::mode`]
//! for how that is decided, and [`super::outermost`] for how the end is recognised.

use super::bounds::Bounds;

/// Strips the pointer authentication bits that aarch64 may keep above a 48-bit address.
#[inline(always)]
pub(super) fn plain_address(address: usize) -> usize {
    if cfg!(target_arch = "aarch64") { address & 0x0000_ffff_ffff_ffff } else { address }
}

/// Walks from frame pointer `fp` of a frame whose stack pointer is `sp`, to the return address `end` or as far as the
/// pointers lead; fills `frames` with return addresses, leaf first, and returns their number.
///
/// Reads nothing outside `sp..stack.high`, and raises `stack.high` where a foreign stack continues: whatever `fp`
/// holds, every step must lie within, be aligned and lead upwards.
#[inline]
pub(super) fn walk(mut fp: usize, sp: usize, mut stack: Bounds, end: usize, frames: &mut [usize]) -> usize {
    const WORD: usize = size_of::<usize>();
    let Some(mut last) = stack.high.checked_sub(2 * WORD) else {
        return 0;
    };
    let mut lowest = sp;
    let mut depth = 0;
    while depth < frames.len() {
        if fp < lowest || !fp.is_multiple_of(WORD) {
            break;
        }
        if fp > last {
            let Some(wider) = stack.extended_to(fp.saturating_add(2 * WORD)) else { break };
            stack = wider;
            last = stack.high - 2 * WORD;
        }
        let frame = fp as *const usize;
        // SAFETY: `sp <= fp` and `fp + 16 <= stack.high`, so both words lie in the used part of this thread's stack,
        // which is mapped, and `fp` is aligned. Pages above the first one of a foreign stack were readable when the
        // kernel was asked: they belong to the stack, which is in use, unless a frame pointer holds another value and
        // the walk reads a neighbouring mapping, which must not be unmapped in that instant.
        let (caller, return_address) = unsafe { (frame.read(), frame.add(1).read()) };
        if return_address == 0 {
            break;
        }
        frames[depth] = plain_address(return_address);
        depth += 1;
        if frames[depth - 1] == end {
            break;
        }
        lowest = fp + 2 * WORD;
        fp = caller;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes frames into a made-up stack: (offset of the frame, offset of its caller, return address).
    fn stack_with(frames: &[(usize, usize, usize)]) -> (Vec<usize>, usize) {
        let mut words = vec![0usize; 64];
        let base = words.as_ptr() as usize;
        for &(at, caller, ret) in frames {
            words[at] = if caller == 0 { 0 } else { base + caller * 8 };
            words[at + 1] = ret;
        }
        (words, base)
    }

    fn walk_it(words: &[usize], base: usize, start: usize) -> Vec<usize> {
        let mut out = [0; 128];
        let bounds = Bounds::new(base, base + words.len() * 8);
        let n = walk(base + start * 8, base, bounds, 0, &mut out);
        out[..n].to_vec()
    }

    #[test]
    fn it_follows_the_chain_to_its_end() {
        let (words, base) = stack_with(&[(2, 10, 0x1000), (10, 40, 0x2000), (40, 0, 0x3000)]);
        assert_eq!(walk_it(&words, base, 2), [0x1000, 0x2000, 0x3000]);
    }

    #[test]
    fn it_ends_at_the_address_that_is_given() {
        let (words, base) = stack_with(&[(2, 10, 0x1000), (10, 40, 0x2000), (40, 0, 0x3000)]);
        let mut out = [0; 128];
        let bounds = Bounds::new(base, base + words.len() * 8);
        assert_eq!(walk(base + 2 * 8, base, bounds, 0x2000, &mut out), 2);
        assert_eq!(out[..3], [0x1000, 0x2000, 0]);
    }

    #[test]
    fn it_never_turns_back_leaves_the_stack_or_reads_unaligned() {
        let (words, base) = stack_with(&[(20, 4, 0x1000), (4, 20, 0x2000)]);
        assert_eq!(walk_it(&words, base, 20), [0x1000], "a cycle");
        let (mut words, base) = stack_with(&[(2, 10, 0x1000)]);
        words[2] = base + 63 * 8;
        assert_eq!(walk_it(&words, base, 2), [0x1000], "the last word is no frame");
        words[2] = base + 10 * 8 + 1;
        assert_eq!(walk_it(&words, base, 2), [0x1000], "unaligned");
        words[2] = usize::MAX - 7;
        assert_eq!(walk_it(&words, base, 2), [0x1000], "beyond the address space");
        assert_eq!(walk(16, 0, Bounds::NONE, 0, &mut [0; 4]), 0, "no stack known");
    }
}
