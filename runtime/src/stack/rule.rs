//! The rule by which a frame's caller is found: the contents of the unwind tables for one address, as two sums.
//!
//! For nearly all code the canonical frame address (CFA: the stack pointer before the call) is the stack pointer or the
//! frame pointer register plus a constant, the return address lies just below it, and the caller's frame pointer is
//! still in the register or at a constant distance from the CFA. framehop derives these at each address and caches them
//! internally, in a form that costs 8 ns a frame to apply; derived and applied here the cost is 4 ns.
//!
//! So framehop is asked once per address, with made-up registers and a stack that answers every read with a unique
//! value. The sums follow from where these values appear in its result. It is asked twice, with different registers: a
//! rule that is not a sum (a CFA that is rounded down, say) gives different results, and framehop must then be asked at
//! each walk.

use super::bounds::Bounds;

/// The rule for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(u64);

/// The registers of the frame that a rule is applied to, or of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) sp: usize,
    pub(super) fp: usize,
}

/// Offsets are below this.
const LIMIT: u64 = 1 << OFFSET_BITS;
const OFFSET_BITS: u32 = 24;
const KIND: u64 = 3;
const FROM_SP: u64 = 1;
const FROM_FP: u64 = 2;

impl Rule {
    /// framehop must be asked.
    pub(super) const ASK: Self = Self(0);
    /// The stack ends here.
    pub(super) const END: Self = Self(3);
    /// The number of bits of a rule.
    pub(super) const BITS: u32 = 2 + 2 * OFFSET_BITS;

    /// Makes the rule CFA = `base` + `cfa`; the caller's frame pointer is stored `saved` bytes below the CFA, or not at
    /// all if `saved` is 0.
    fn new(base: u64, cfa: u64, saved: u64) -> Self {
        debug_assert!(cfa < LIMIT && saved < LIMIT);
        Self(base | saved << 2 | cfa << (2 + OFFSET_BITS))
    }

    /// Returns the rule as a number below 2^[`BITS`](Self::BITS).
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Makes a rule from the result of [`bits`](Self::bits), ignoring higher bits.
    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// Returns the caller's frame and the return address into it; `None` where the stack cannot continue.
    ///
    /// `word` reads the stack, only at multiples of 8 from `stack.low` to 8 below `stack.high`.
    #[inline(always)]
    pub(super) fn apply(
        self,
        frame: Frame,
        stack: Bounds,
        word: impl Fn(usize) -> usize,
    ) -> Option<(Frame, usize)> {
        let base = match self.0 & KIND {
            FROM_SP => frame.sp,
            FROM_FP => frame.fp,
            _ => return None,
        };
        let cfa = base.wrapping_add((self.0 >> (2 + OFFSET_BITS)) as usize);
        // An invalid frame pointer may lead anywhere. A stack that does not lead upwards may never end.
        if cfa <= frame.sp || cfa > stack.high || cfa % 8 != 0 {
            return None;
        }
        let used = cfa.checked_sub(stack.low)?;
        if used < 8 {
            return None;
        }
        // A multiple of 8; it is 0 only if nothing is to be read.
        let saved = (self.0 >> 2 & (LIMIT - 1)) as usize;
        let return_address = word(cfa - 8);
        // A saved register below the used stack is no longer there: in an epilogue where the tables are not exact, the
        // register holds its value again. framehop does the same.
        let fp = if saved == 0 || saved > used { frame.fp } else { word(cfa - saved) };
        (return_address != 0).then_some((Frame { sp: cfa, fp }, return_address))
    }

    /// Returns the extended stack, if it extends as far as this rule needs after it found no caller within `stack`.
    #[cold]
    pub(super) fn stack_beyond(self, frame: Frame, stack: Bounds) -> Option<Bounds> {
        let base = match self.0 & KIND {
            FROM_SP => frame.sp,
            FROM_FP => frame.fp,
            _ => return None,
        };
        let cfa = base.checked_add((self.0 >> (2 + OFFSET_BITS)) as usize)?;
        if cfa > stack.high { stack.extended_to(cfa) } else { None }
    }
}

/// The result of an unwinder for a frame: the caller's frame and the return address into it, or `None` at the end of
/// the stack, or an error if the unwinder does not know.
pub(super) type Unwound = Result<Option<(Frame, usize)>, ()>;

/// Reads the word at an address of the stack.
pub(super) type Read<'a> = dyn FnMut(u64) -> Result<u64, ()> + 'a;

/// A made-up frame, and the first of the words on its stack.
struct Probe {
    frame: Frame,
    first_word: u64,
}

/// Far apart, so that a result shows which register it comes from; the frame pointer above the stack pointer, as
/// unwinders check; aligned differently.
const PROBES: [Probe; 2] = [
    Probe { frame: Frame { sp: 0x0100_0000_0000, fp: 0x0300_0000_0000 }, first_word: 0x0700_0000_0000 },
    Probe { frame: Frame { sp: 0x0100_0005_4328, fp: 0x0300_0007_1238 }, first_word: 0x0600_0000_1010 },
];

/// More reads than any rule needs.
const READS: usize = 4;

impl Probe {
    /// Returns the value of the read with this number.
    fn word(&self, number: usize) -> u64 {
        self.first_word + ((number as u64) << 32)
    }
}

/// Learns the rule of one address from an unwinder, which is called with made-up frames at that address.
pub(super) fn learn(mut unwind: impl FnMut(Frame, &mut Read<'_>) -> Unwound) -> Rule {
    let [first, second] = PROBES.map(|probe| answer(&probe, &mut unwind));
    if first == second { first } else { Rule::ASK }
}

fn answer(probe: &Probe, unwind: &mut impl FnMut(Frame, &mut Read<'_>) -> Unwound) -> Rule {
    let mut reads = [0; READS];
    let mut count = 0;
    let unwound = unwind(probe.frame, &mut |address| {
        *reads.get_mut(count).ok_or(())? = address;
        count += 1;
        Ok(probe.word(count - 1))
    });
    let (caller, return_address) = match unwound {
        Ok(Some(found)) => found,
        Ok(None) => return Rule::END,
        Err(()) => return Rule::ASK,
    };
    let cfa = caller.sp as u64;
    // Returns how far below the CFA the word with this value was read.
    let depth_of = |value: usize| {
        let at = (0..count).find(|&at| value as u64 == probe.word(at))?;
        Some(cfa.wrapping_sub(reads[at])).filter(|depth| (8..LIMIT).contains(depth) && depth % 8 == 0)
    };
    let saved = if caller.fp == probe.frame.fp { Some(0) } else { depth_of(caller.fp) };
    let (Some(8), Some(saved)) = (depth_of(return_address), saved) else { return Rule::ASK };
    for (base, register) in [(FROM_SP, probe.frame.sp), (FROM_FP, probe.frame.fp)] {
        let offset = cfa.wrapping_sub(register as u64);
        if (8..LIMIT).contains(&offset) {
            return Rule::new(base, offset, saved);
        }
    }
    Rule::ASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(cfa: usize, fp: usize, read: &mut Read<'_>) -> Unwound {
        let return_address = read(cfa as u64 - 8)?;
        Ok(Some((Frame { sp: cfa, fp }, return_address as usize)))
    }

    const STACK: Bounds = Bounds::new(0x1000, 0x2000);

    /// Returns words that hold their own addresses plus one.
    fn word(address: usize) -> usize {
        assert!((STACK.low..=STACK.high - 8).contains(&address) && address.is_multiple_of(8), "{address:#x}");
        address + 1
    }

    fn apply(rule: Rule, fp: usize) -> Option<(usize, usize, usize)> {
        rule.apply(Frame { sp: 0x1100, fp }, STACK, word).map(|(frame, ip)| (frame.sp, frame.fp, ip))
    }

    #[test]
    fn sums_are_learnt() {
        let plain = learn(|at, read| caller(at.sp + 24, at.fp, read));
        assert_eq!(apply(plain, 7), Some((0x1118, 7, 0x1111)));

        let restores = learn(|at, read| {
            let fp = read(at.sp as u64 + 32)? as usize;
            caller(at.sp + 48, fp, read)
        });
        assert_eq!(apply(restores, 7), Some((0x1130, 0x1121, 0x1129)));

        let by_frame_pointer = learn(|at, read| {
            let fp = read(at.fp as u64)? as usize;
            caller(at.fp + 16, fp, read)
        });
        assert_eq!(apply(by_frame_pointer, 0x1200), Some((0x1210, 0x1201, 0x1209)));
        assert_eq!(apply(by_frame_pointer, 0x1ff0), Some((0x2000, 0x1ff1, 0x1ff9)));
        for fp in [0, 0x1000, 0x1100 - 16, 0x1204, 0x1ff8, 0x2000, usize::MAX - 15, usize::MAX] {
            assert_eq!(apply(by_frame_pointer, fp), None, "{fp:#x}");
        }
        // Saved below the used stack.
        let deep = learn(|at, read| {
            let fp = read(at.sp as u64 - 0x200)? as usize;
            caller(at.sp + 16, fp, read)
        });
        assert_eq!(apply(deep, 7), Some((0x1110, 7, 0x1109)));
        let deeper = deep.apply(Frame { sp: 0x1200, fp: 7 }, STACK, word);
        assert_eq!(deeper, Some((Frame { sp: 0x1210, fp: 0x1001 }, 0x1209)));
        for sp in [0, 0x1000 - 24] {
            assert_eq!(plain.apply(Frame { sp, fp: 7 }, STACK, word), None, "{sp:#x}");
        }

        assert_eq!(learn(|_, _| Ok(None)), Rule::END);
        assert_eq!(apply(Rule::END, 0x1200), None);
    }

    #[test]
    fn anything_else_is_asked_again() {
        let rounded = learn(|at, read| caller((at.sp & !15) + 32, at.fp, read));
        let from_memory = learn(|at, read| {
            let cfa = read(at.sp as u64 + 8)? as usize;
            caller(cfa, at.fp, read)
        });
        let fp_computed = learn(|at, read| caller(at.sp + 16, at.fp + 8, read));
        let fp_from_sp = learn(|at, read| caller(at.sp + 16, at.sp, read));
        let return_address_elsewhere = learn(|at, read| {
            let return_address = read(at.sp as u64 + 8)? as usize;
            Ok(Some((Frame { sp: at.sp + 32, fp: at.fp }, return_address)))
        });
        let far = learn(|at, read| caller(at.sp + (1 << 24), at.fp, read));
        let back = learn(|at, read| caller(at.sp - 16, at.fp, read));
        let nowhere = learn(|at, read| caller(at.sp, at.fp, read));
        let many = learn(|at, read| {
            for word in 0..10 {
                let _ = read(at.sp as u64 + word * 8);
            }
            caller(at.sp + 16, at.fp, read)
        });
        let unaligned = learn(|at, read| {
            let fp = read(at.sp as u64 + 4)? as usize;
            caller(at.sp + 16, fp, read)
        });
        let unknown = learn(|_, _| Err(()));
        let rules = [
            rounded,
            from_memory,
            fp_computed,
            fp_from_sp,
            return_address_elsewhere,
            far,
            back,
            nowhere,
            many,
            unaligned,
            unknown,
        ];
        assert_eq!(rules, [Rule::ASK; 11]);
    }
}
