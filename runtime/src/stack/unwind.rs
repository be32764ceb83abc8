//! The walk by unwind tables, through framehop: on x86-64 about 4 ns a frame that was seen before, right
//! in code without frame pointers too.
//!
//! The data of walks lives here: framehop's unwinders (the set of modules), replaced as a whole when modules are loaded
//! or unloaded, and a set of caches made at start:
//!
//! ```text
//!   INSTALLED ─────► unwinders of the modules known now     (the old ones are freed when no walk uses them)
//!   stripes ───► [ lock | rules ] [ lock | rules ] …  [ lock | framehop's caches ] …          see `stripes`
//! ```
#![cfg_attr(not(rtprof_supported), allow(unused_variables))]

use super::bounds::Bounds;
use super::registers::Registers;
use crate::modules::Module;

/// The stack space that a walk itself needs. framehop took 15.5 KiB in a release and 53.7 KiB in a debug build; with
/// less than this left the walk is done on a spare stack.
pub(super) const OWN_STACK: usize = if cfg!(debug_assertions) { 80 << 10 } else { 32 << 10 };

#[cfg(rtprof_supported)]
pub(crate) use imp::install;
#[cfg(rtprof_supported)]
pub(super) use imp::{find_frame, walk};

#[cfg(rtprof_supported)]
mod imp {
    use super::super::frame_pointer::plain_address;
    use super::super::rule::{self, Frame, Read, Rule, Unwound};
    use super::super::spare;
    use super::super::stripes::{self, Cache, SlotGuard};
    use super::super::unwinders::Unwinders;
    use super::*;
    use core::sync::atomic::{AtomicPtr, Ordering};
    use framehop::{FrameAddress, UnwindRegsNative, Unwinder};

    /// The modules as walks know them.
    struct Installed {
        unwinders: Unwinders,
        /// The number of sets of modules up to this one.
        generation: u64,
    }

    static INSTALLED: AtomicPtr<Installed> = AtomicPtr::new(core::ptr::null_mut());

    /// Makes walks use these modules. Must not be called in a hook.
    pub(crate) fn install(modules: &[&'static Module]) {
        let unwinders = Unwinders::new(modules);
        // Called by one thread at a time, which holds the lock of the modules.
        // SAFETY: only this function frees the unwinder that it has replaced.
        let before = unsafe { INSTALLED.load(Ordering::Acquire).as_ref() };
        let generation = before.map_or(0, |known| known.generation) + 1;
        let old =
            INSTALLED.swap(Box::into_raw(Box::new(Installed { unwinders, generation })), Ordering::AcqRel);
        if stripes::empty() && !old.is_null() {
            // SAFETY: no walk that began before the swap is still running, and later walks use the new unwinder.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// Walks from `registers`, to the return address `end` or as far as the stack goes; fills `frames` with return
    /// addresses, leaf first, and returns their number. Returns `None` when no cache is free, or when neither this stack
    /// nor a spare one has enough room.
    pub(crate) fn walk(
        registers: Registers,
        stack: Bounds,
        end: usize,
        frames: &mut [usize],
    ) -> Option<usize> {
        if stack.is_foreign {
            return spare::with_room_to_unwind(|| walk_within::<true>(registers, stack, end, frames))
                .flatten();
        }
        if registers.sp.wrapping_sub(stack.low) >= OWN_STACK {
            return walk_within::<false>(registers, stack, end, frames);
        }
        spare::with_room_to_unwind(|| walk_within::<false>(registers, stack, end, frames)).flatten()
    }

    /// Walks as [`walk`] does, where there is room. Compiled separately for foreign stacks, whose bounds change during
    /// the walk, because variable bounds cost the other version a tenth.
    fn walk_within<const FOREIGN: bool>(
        registers: Registers,
        stack: Bounds,
        end: usize,
        frames: &mut [usize],
    ) -> Option<usize> {
        let mut taken = stripes::take()?;
        // Loaded after the rules were taken: `install` relies on it.
        // SAFETY: an unwinder is freed only after it was replaced and all rules were found free.
        let known = unsafe { INSTALLED.load(Ordering::Acquire).as_ref() }?;
        let mut framehop = Framehop { unwinders: &known.unwinders, caches: None };
        // Without the part below the stack pointer, which any code may overwrite.
        let mut stack = Bounds { low: registers.sp, ..stack };
        let rules = taken.of(known.generation);
        // The address by which the rule of the current frame is found.
        let mut address = registers.ip as u64;
        let at = |address: u64, depth: usize| match depth {
            0 => FrameAddress::from_instruction_pointer(address),
            // One byte before the return address lies in the call instruction.
            _ => FrameAddress::from_return_address(address + 1).expect("it is not 0"),
        };
        let mut frame = Frame { sp: registers.sp, fp: registers.fp };
        let mut place = rules.find(address, || framehop.learn(at(address, 0), registers))?;
        let mut depth = 0;
        while depth < frames.len() {
            let rule = rules.rule(place);
            let mut caller = if rule == Rule::ASK {
                let at = at(address, depth);
                let mut now = stack;
                let mut read = |at: u64| read::<FOREIGN>(&mut now, at as usize);
                let caller = framehop.ask(at, native(at, frame, registers), &mut read)?;
                if FOREIGN {
                    stack = now;
                }
                caller.ok().flatten()
            } else {
                // SAFETY: `Rule::apply` reads only aligned words within the used part of this thread's stack.
                rule.apply(frame, stack, |at| unsafe { word(at) })
            };
            if FOREIGN
                && caller.is_none()
                && let Some(wider) = rule.stack_beyond(frame, stack)
            {
                stack = wider;
                // SAFETY: `Rule::apply` reads only aligned words within the used part of this thread's stack.
                caller = rule.apply(frame, stack, |at| unsafe { word(at) });
            }
            let Some((next, return_address)) = caller else {
                // Most stacks end in this way: the tables say that the first function of a thread has no caller.
                if rule == Rule::END {
                    return Some(depth);
                }
                break;
            };
            if return_address == 0 {
                break;
            }
            frames[depth] = plain_address(return_address);
            depth += 1;
            if frames[depth - 1] == end {
                return Some(depth);
            }
            frame = next;
            address = return_address as u64 - 1;
            place = rules.find_after(place, address, || framehop.learn(at(address, depth), registers))?;
        }
        Some(known.unwinders.without_invented(registers.ip, &frames[..depth]))
    }

    /// Walks from `registers` to the frame whose stack pointer is `sp`, and returns its instruction pointer: `Some(None)` if there
    /// is no such frame, `None` when the walk ends before, or cannot begin. Without rules: for walks that are rare.
    ///
    /// Ends at a frame that does not lead upwards, so that wrong tables cost a frame and never the thread.
    pub(crate) fn find_frame(registers: Registers, stack: Bounds, sp: usize) -> Option<Option<usize>> {
        spare::with_room_to_unwind(|| find_frame_within(registers, stack, sp)).flatten()
    }

    fn find_frame_within(registers: Registers, stack: Bounds, sp: usize) -> Option<Option<usize>> {
        let _taken = stripes::take()?;
        // As in `walk_within`.
        // SAFETY: an unwinder is freed only after it was replaced and all rules were found free.
        let known = unsafe { INSTALLED.load(Ordering::Acquire).as_ref() }?;
        let mut framehop = Framehop { unwinders: &known.unwinders, caches: None };
        let mut stack = Bounds { low: registers.sp, ..stack };
        let mut frame = Frame { sp: registers.sp, fp: registers.fp };
        let mut at = FrameAddress::from_instruction_pointer(registers.ip as u64);
        while frame.sp < sp {
            let mut read = |at: u64| read::<true>(&mut stack, at as usize);
            let from = native(at, frame, registers);
            let (next, return_address) = framehop.ask(at, from, &mut read)?.ok().flatten()?;
            if next.sp <= frame.sp {
                return None;
            }
            frame = next;
            at = FrameAddress::from_return_address(plain_address(return_address) as u64)?;
        }
        Some((frame.sp == sp).then(|| at.address() as usize))
    }

    /// Reads the stack for framehop, and extends the bounds of a foreign one.
    fn read<const FOREIGN: bool>(stack: &mut Bounds, at: usize) -> Result<u64, ()> {
        let end = at.checked_add(8).ok_or(())?;
        if FOREIGN && end > stack.high {
            *stack = stack.extended_to(end).ok_or(())?;
        }
        let inside = at >= stack.low && end <= stack.high && at.is_multiple_of(8);
        // SAFETY: the word is aligned and within the used part of this thread's stack.
        inside.then(|| unsafe { word(at) } as u64).ok_or(())
    }

    /// Reads a word of the stack.
    ///
    /// # Safety
    /// `at` is aligned and lies within the used part of this thread's stack.
    #[inline(always)]
    unsafe fn word(at: usize) -> usize {
        // SAFETY: the caller guarantees an aligned address within the used part of this thread's stack.
        unsafe { (at as *const usize).read() }
    }

    /// Returns a frame's registers in framehop's form.
    fn native(at: FrameAddress, frame: Frame, registers: Registers) -> UnwindRegsNative {
        #[cfg(target_arch = "x86_64")]
        {
            // framehop compares only the first frame's instruction pointer.
            let _ = registers;
            UnwindRegsNative::new(at.address(), frame.sp as u64, frame.fp as u64)
        }
        #[cfg(target_arch = "aarch64")]
        {
            let lr = if at.is_return_address() { at.address() } else { registers.lr as u64 };
            // The same mask as in `plain_address`.
            let mask = framehop::aarch64::PtrAuthMask(0x0000_ffff_ffff_ffff);
            UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, frame.sp as u64, frame.fp as u64)
        }
    }

    /// framehop's knowledge of the modules. Its caches are taken when a walk needs them.
    struct Framehop<'a> {
        unwinders: &'a Unwinders,
        caches: Option<SlotGuard<Box<[Cache]>>>,
    }

    impl Framehop<'_> {
        /// Unwinds one frame. Returns `None` if all caches are taken.
        #[cold]
        #[inline(never)]
        fn ask(
            &mut self,
            at: FrameAddress,
            mut registers: UnwindRegsNative,
            read: &mut Read<'_>,
        ) -> Option<Unwound> {
            if self.caches.is_none() {
                self.caches = stripes::take_framehop();
            }
            let caches = self.caches.as_deref_mut()?;
            let mut read = |address: u64| read(address);
            let cache = &mut caches[(at.address_for_lookup() >> 4) as usize % caches.len()];
            let unwinder = self.unwinders.of(at.address_for_lookup());
            let caller = match unwinder.unwind_frame(at, &mut registers, cache, &mut read) {
                Ok(Some(caller)) => caller,
                Ok(None) => return Some(Ok(None)),
                Err(_) => return Some(Err(())),
            };
            #[cfg(target_arch = "x86_64")]
            let fp = registers.bp();
            #[cfg(target_arch = "aarch64")]
            let fp = registers.fp();
            Some(Ok(Some((Frame { sp: registers.sp() as usize, fp: fp as usize }, caller as usize))))
        }

        /// Learns the rule of an address that is not in the cache. Returns `None` if all caches are taken.
        #[cold]
        #[inline(never)]
        fn learn(&mut self, at: FrameAddress, registers: Registers) -> Option<Rule> {
            // The return address may still be in a register there.
            if cfg!(target_arch = "aarch64") {
                return Some(Rule::ASK);
            }
            let mut is_asked = true;
            let rule = rule::learn(|frame, read| {
                let unwound = self.ask(at, native(at, frame, registers), read);
                is_asked &= unwound.is_some();
                unwound.unwrap_or(Err(()))
            });
            // There are few of them, and the walk goes on for longer than this took.
            self.caches = None;
            is_asked.then_some(rule)
        }
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use super::*;

    pub(crate) fn install(modules: &[&'static Module]) {}

    pub(crate) fn walk(
        registers: Registers,
        stack: Bounds,
        end: usize,
        frames: &mut [usize],
    ) -> Option<usize> {
        None
    }
}
#[cfg(not(rtprof_supported))]
pub(crate) use imp::install;
#[cfg(not(rtprof_supported))]
pub(super) use imp::walk;
