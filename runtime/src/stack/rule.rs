//! How a frame's caller is found: what the unwind tables say of one address, as two sums.
//!
//! For nearly all code the canonical frame address (CFA: the stack pointer as it was before the call) is
//! the stack pointer or the frame pointer register plus a constant, the return address lies below it, and the
//! caller's frame pointer is in the register still or at a constant distance from the CFA. framehop finds that
//! out at each address, and keeps it for itself, in a form that costs 8 ns a frame to apply; found and applied here
//! it costs 4.
//!
//! So framehop is asked once, about registers that are made up and a stack that answers every read with a value found
//! nowhere else. Where these values come out tells the sums. It is asked twice, with other registers: what is no
//! sum (a CFA that is rounded down, say) comes out different, and is framehop's to answer each time.

use super::bounds::Bounds;

/// What to do at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(u64);

/// The frame that a rule is applied to, and the next one.
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
    /// framehop is to be asked.
    pub(super) const ASK: Self = Self(0);
    /// The stack ends here.
    pub(super) const END: Self = Self(3);
    /// How many bits a rule has.
    pub(super) const BITS: u32 = 2 + 2 * OFFSET_BITS;

    /// CFA − `base` = `cfa`; the caller's frame pointer lies `saved` bytes below the CFA, or for 0 nowhere.
    fn new(base: u64, cfa: u64, saved: u64) -> Self {
        debug_assert!(cfa < LIMIT && saved < LIMIT);
        Self(base | saved << 2 | cfa << (2 + OFFSET_BITS))
    }

    /// As a number below 2^[`BITS`](Self::BITS).
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// From what [`bits`](Self::bits) gave, whatever stands above.
    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// The caller's frame and the return address into it; `None` where the stack cannot go on.
    ///
    /// `word` reads the stack: at multiples of 8 from `stack.low` to 8 below `stack.high`, nowhere else.
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
        // A frame pointer that is none leads anywhere. Stacks that do not lead upwards may never end.
        if cfa <= frame.sp || cfa > stack.high || cfa % 8 != 0 {
            return None;
        }
        let used = cfa.checked_sub(stack.low)?;
        if used < 8 {
            return None;
        }
        // A multiple of 8, and not 0 but with nothing to read.
        let saved = (self.0 >> 2 & (LIMIT - 1)) as usize;
        let return_address = word(cfa - 8);
        // Nothing that is saved any more lies below the stack in use: in an epilogue that the tables are not exact
        // about, the register has it again. framehop does the same.
        let fp = if saved == 0 || saved > used { frame.fp } else { word(cfa - saved) };
        (return_address != 0).then_some((Frame { sp: cfa, fp }, return_address))
    }

    /// The stack if it goes on as far as a rule needs that found no caller within `stack`.
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

/// What an unwinder makes of a frame: the caller's and the return address into it, or that there is none, or that it
/// does not know.
pub(super) type Unwound = Result<Option<(Frame, usize)>, ()>;

/// Gives the word at an address of the stack.
pub(super) type Read<'a> = dyn FnMut(u64) -> Result<u64, ()> + 'a;

/// A question: a frame, and the first of the words that its stack holds.
struct Probe {
    frame: Frame,
    first_word: u64,
}

/// Far apart, so that a result tells which register it comes from; the frame pointer above the stack pointer, as
/// unwinders check; aligned differently.
const PROBES: [Probe; 2] = [
    Probe { frame: Frame { sp: 0x0100_0000_0000, fp: 0x0300_0000_0000 }, first_word: 0x0700_0000_0000 },
    Probe { frame: Frame { sp: 0x0100_0005_4328, fp: 0x0300_0007_1238 }, first_word: 0x0600_0000_1010 },
];

/// More reads than any rule needs.
const READS: usize = 4;

impl Probe {
    /// What the read of this number finds.
    fn word(&self, number: usize) -> u64 {
        self.first_word + ((number as u64) << 32)
    }
}

/// Learns the rule of one address from an unwinder that is asked about made-up frames there.
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
    // How far below the CFA the word lies that came out as this value.
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

    /// Words that hold their own addresses plus one.
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
        // Saved further down than the stack in use.
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
