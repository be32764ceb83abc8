//! The walk by unwind tables (`.eh_frame`), through framehop: on x86-64 about 4 ns a frame that was seen before, right
//! in code without frame pointers too.
//!
//! The data of walks lives here: framehop's unwinder (the set of modules), replaced as a whole when modules are loaded
//! or unloaded, and a fixed set of caches made at start:
//!
//! ```text
//!   KNOWN ─────► unwinder of the modules known now      (the old one is freed when no walk uses it)
//!   STRIPES  ──► [ lock | rules, framehop's cache ] [ lock | rules, framehop's cache ] …
//!                one taken by try-lock for each walk
//! ```
//!
//! A stripe's caches are 97 KiB, too much for every thread and impossible to make in a hook. framehop's own cache has
//! 509 places, one for each remainder of an address, so two return addresses of one stack that share a place evict each
//! other at every walk, at 300 ns each; among 32 frames that is more likely than not. So framehop is asked once about
//! each address, and at each walk only for the few frames without a [`rule`](super::rule). On aarch64 no rule is learnt
//! yet: framehop is asked for each frame, which takes 15 to 28 ns on x86-64, and a stripe has more of its caches.
//!
//! A walk tries the stripe of its thread first, then the others; when all are taken it gives up, and the sample keeps
//! its innermost frame alone, and is counted. Nothing waits, so a stripe whose holder does not exist in a forked child
//! is one stripe less there, not a hang. The child does not reuse that stripe: its cache may be half written.
#![cfg_attr(not(rtprof_supported), allow(unused_variables))]

use super::Registers;
use super::bounds::Bounds;
use crate::modules::Module;

/// The stack space that a walk itself needs. framehop took 15.5 KiB in a release and 53.7 KiB in a debug build; with
/// less than this left the walk is done on a spare stack.
pub(super) const OWN_STACK: usize = if cfg!(debug_assertions) { 80 << 10 } else { 32 << 10 };

#[cfg(rtprof_supported)]
pub(super) use imp::{find_frame, walk};
#[cfg(rtprof_supported)]
pub(crate) use imp::{install, open};

#[cfg(rtprof_supported)]
mod imp {
    use super::super::frame_pointer::plain_address;
    use super::super::rule::{self, Frame, Read, Rule, Unwound};
    use super::super::rule_cache::RuleCache;
    use super::super::spare;
    use super::*;
    use core::cell::{Cell, UnsafeCell};
    use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    use framehop::{
        CacheNative, ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative,
        Unwinder, UnwinderNative,
    };

    type Native = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;
    type Cache = CacheNative<MustNotAllocateDuringUnwind>;

    /// The modules as walks know them.
    struct Known {
        unwinder: Native,
        /// The number of sets of modules up to this one.
        generation: u64,
    }

    /// The caches that persist between walks.
    struct Caches {
        rules: RuleCache,
        /// The generation of modules from which the rules were learnt. (framehop's cache counts its generations
        /// separately.)
        generation: u64,
        /// By address.
        framehop: Box<[Cache]>,
    }

    /// Per stripe. Where no rule is learnt each frame needs a place, and one in four stacks of 32 frames has two that
    /// share a place; with a single cache most stacks would.
    const FRAMEHOP_CACHES: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

    /// Aligned so that two neighbours share no cache line.
    #[repr(align(128))]
    struct Stripe {
        taken: AtomicU32,
        caches: UnsafeCell<Caches>,
    }

    // SAFETY: the caches are only accessed by the thread that changed `taken` from 0 to 1.
    unsafe impl Sync for Stripe {}

    static KNOWN: AtomicPtr<Known> = AtomicPtr::new(core::ptr::null_mut());
    /// Leaked. Not a `OnceLock`: a forked child would wait for the thread that was filling it.
    static STRIPES: AtomicPtr<Box<[Stripe]>> = AtomicPtr::new(core::ptr::null_mut());
    static NEXT_STRIPE: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        // The stripe that this thread tries first, plus one; 0 before its first walk.
        static PREFERRED: Cell<u32> = const { Cell::new(0) };
    }

    /// Makes the caches. Called by [`crate::init::open`], by one thread at a time; must not be called in a hook.
    pub(crate) fn open() {
        if STRIPES.load(Ordering::Acquire).is_null() {
            let cores = std::thread::available_parallelism().map_or(4, usize::from);
            let stripes: Box<[Stripe]> = (0..(2 * cores).clamp(4, 64)).map(|_| Stripe::new()).collect();
            STRIPES.store(Box::into_raw(Box::new(stripes)), Ordering::Release);
        }
    }

    /// Makes walks use these modules. Must not be called in a hook.
    pub(crate) fn install(modules: &[&'static Module]) {
        let mut unwinder = Native::new();
        // It keeps them in order, in a vector: those with lower addresses are not to be inserted before the others.
        let mut modules: Vec<_> = modules.iter().filter(|module| module.is_loaded()).collect();
        modules.sort_by_key(|module| module.start);
        for module in modules {
            let (header, header_at) = module.unwind.header;
            let (frames, frames_at) = module.unwind.frames;
            if frames.is_empty() {
                continue;
            }
            // framehop wants addresses in the module's own numbering beside the bytes in memory. The file's numbering
            // could begin anywhere; this one begins at 0.
            let svma = |at: usize, len: usize| {
                let start = at.wrapping_sub(module.base) as u64;
                Some(start..start.wrapping_add(len as u64))
            };
            unwinder.add_module(framehop::Module::new(
                module.path.clone(),
                module.start as u64..module.limit as u64,
                module.base as u64,
                ExplicitModuleSectionInfo {
                    base_svma: 0,
                    text_svma: svma(module.start, module.limit - module.start),
                    eh_frame_hdr_svma: svma(header_at, header.len()),
                    eh_frame_hdr: Some(header),
                    eh_frame_svma: svma(frames_at, frames.len()),
                    eh_frame: Some(frames),
                    ..Default::default()
                },
            ));
        }
        // Called by one thread at a time, which holds the lock of the modules.
        // SAFETY: only this function frees the unwinder that it has replaced.
        let before = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
        let generation = before.map_or(0, |known| known.generation) + 1;
        let old = KNOWN.swap(Box::into_raw(Box::new(Known { unwinder, generation })), Ordering::AcqRel);
        if renew_caches(generation) && !old.is_null() {
            // SAFETY: this thread held every stripe for a moment since the swap, so no walk that began before the swap
            // is still running, and later walks use the new unwinder.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// Gives every stripe fresh caches, for the modules of this generation: framehop recognises stale cache entries by
    /// a 16-bit generation, which wraps in a program that loads plugins for ever. Returns whether all stripes were
    /// taken. A stripe that stays in use (for long by a thread that lost its core, for ever by a missing thread in a
    /// forked child) keeps its caches, and the old unwinder is leaked.
    fn renew_caches(generation: u64) -> bool {
        let mut all = true;
        for stripe in stripes() {
            let fresh = Caches::new(generation);
            // A walk takes microseconds, unless its thread is preempted.
            let taken = (0..200).any(|_| {
                let taken = stripe.try_take();
                if !taken {
                    std::thread::yield_now();
                }
                taken
            });
            all &= taken;
            if taken {
                // SAFETY: this thread has set `taken`.
                let old = unsafe { core::mem::replace(&mut *stripe.caches.get(), fresh) };
                stripe.release();
                drop(old);
            }
        }
        all
    }

    fn stripes() -> &'static [Stripe] {
        // SAFETY: installed stripes are leaked, so they stay valid.
        unsafe { STRIPES.load(Ordering::Acquire).as_ref() }.map_or(&[], |stripes| stripes)
    }

    impl Caches {
        fn new(generation: u64) -> Self {
            let framehop = (0..FRAMEHOP_CACHES).map(|_| Cache::new_in()).collect();
            Self { rules: RuleCache::new(), generation, framehop }
        }
    }

    impl Stripe {
        fn new() -> Self {
            Self { taken: AtomicU32::new(0), caches: UnsafeCell::new(Caches::new(0)) }
        }

        fn try_take(&self) -> bool {
            self.taken.load(Ordering::Relaxed) == 0
                && self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        fn release(&self) {
            self.taken.store(0, Ordering::Release);
        }
    }

    fn take_stripe() -> Option<&'static Stripe> {
        let preferred = PREFERRED.with(|cell| {
            if cell.get() == 0 {
                cell.set(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % 1024 + 1);
            }
            cell.get() as usize
        });
        let stripes = stripes();
        (0..stripes.len()).map(|i| &stripes[(preferred + i) % stripes.len()]).find(|s| s.try_take())
    }

    /// Walks from `registers`; fills `frames` with return addresses, leaf first, and returns their number. Returns
    /// `None` when no cache is free, or when neither this stack nor a spare one has enough room.
    pub(crate) fn walk(registers: Registers, stack: Bounds, frames: &mut [usize]) -> Option<usize> {
        if stack.is_foreign {
            return spare::with_room_to_unwind(|| walk_within::<true>(registers, stack, frames)).flatten();
        }
        if registers.sp.wrapping_sub(stack.low) >= OWN_STACK {
            return walk_within::<false>(registers, stack, frames);
        }
        spare::with_room_to_unwind(|| walk_within::<false>(registers, stack, frames)).flatten()
    }

    /// Walks as [`walk`] does, where there is room. Compiled separately for foreign stacks, whose bounds change during
    /// the walk, because variable bounds cost the other version a tenth.
    fn walk_within<const FOREIGN: bool>(
        registers: Registers,
        stack: Bounds,
        frames: &mut [usize],
    ) -> Option<usize> {
        let stripe = take_stripe()?;
        // Loaded after the stripe was taken: `install` relies on it.
        // SAFETY: an unwinder is freed only after it was replaced and each stripe was found free.
        let Some(known) = (unsafe { KNOWN.load(Ordering::Acquire).as_ref() }) else {
            stripe.release();
            return None;
        };
        let unwinder = &known.unwinder;
        // SAFETY: this thread holds `taken` until `release` below.
        let caches = unsafe { &mut *stripe.caches.get() };
        // Without the part below the stack pointer, which any code may overwrite.
        let mut stack = Bounds { low: registers.sp, ..stack };
        let Caches { rules, generation, framehop } = caches;
        if *generation != known.generation {
            rules.forget();
            *generation = known.generation;
        }
        // The address by which the rule of the current frame is found.
        let mut address = registers.ip as u64;
        let at = |address: u64, depth: usize| match depth {
            0 => FrameAddress::from_instruction_pointer(address),
            // One byte before the return address lies in the call instruction.
            _ => FrameAddress::from_return_address(address + 1).expect("it is not 0"),
        };
        let mut frame = Frame { sp: registers.sp, fp: registers.fp };
        let mut place = rules.find(address, || learn(unwinder, framehop, at(address, 0), registers));
        let mut depth = 0;
        while depth < frames.len() {
            let rule = rules.rule(place);
            let mut caller = if rule == Rule::ASK {
                let at = at(address, depth);
                let mut now = stack;
                let mut read = |at: u64| read::<FOREIGN>(&mut now, at as usize);
                let caller = ask(unwinder, framehop, at, native(at, frame, registers), &mut read);
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
            // The caller of the outermost frame cannot be found: most stacks end in this way.
            let Some((next, return_address)) = caller else { break };
            if return_address == 0 {
                break;
            }
            frames[depth] = plain_address(return_address);
            depth += 1;
            frame = next;
            address = return_address as u64 - 1;
            place =
                rules.find_after(place, address, || learn(unwinder, framehop, at(address, depth), registers));
        }
        stripe.release();
        Some(depth)
    }

    /// Walks from `registers` to the frame whose stack pointer is `sp`, and returns its instruction pointer: `Some(None)` if there
    /// is no such frame, `None` when the walk ends before, or cannot begin. Without rules: for walks that are rare.
    ///
    /// Ends at a frame that does not lead upwards, so that wrong tables cost a frame and never the thread.
    pub(crate) fn find_frame(registers: Registers, stack: Bounds, sp: usize) -> Option<Option<usize>> {
        spare::with_room_to_unwind(|| find_frame_within(registers, stack, sp)).flatten()
    }

    fn find_frame_within(registers: Registers, stack: Bounds, sp: usize) -> Option<Option<usize>> {
        let stripe = take_stripe()?;
        // As in `walk_within`.
        // SAFETY: an unwinder is freed only after it was replaced and each stripe was found free.
        let known = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
        let found = known.and_then(|known| {
            // SAFETY: this thread holds `taken` until `release` below.
            let caches = unsafe { &mut (*stripe.caches.get()).framehop };
            let mut stack = Bounds { low: registers.sp, ..stack };
            let mut frame = Frame { sp: registers.sp, fp: registers.fp };
            let mut at = FrameAddress::from_instruction_pointer(registers.ip as u64);
            while frame.sp < sp {
                let mut read = |at: u64| read::<true>(&mut stack, at as usize);
                let from = native(at, frame, registers);
                let (next, return_address) =
                    ask(&known.unwinder, caches, at, from, &mut read).ok().flatten()?;
                if next.sp <= frame.sp {
                    return None;
                }
                frame = next;
                at = FrameAddress::from_return_address(plain_address(return_address) as u64)?;
            }
            Some((frame.sp == sp).then(|| at.address() as usize))
        });
        stripe.release();
        found
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

    /// Unwinds one frame by framehop.
    #[cold]
    #[inline(never)]
    fn ask(
        unwinder: &Native,
        caches: &mut [Cache],
        at: FrameAddress,
        mut registers: UnwindRegsNative,
        read: &mut Read<'_>,
    ) -> Unwound {
        let mut read = |address: u64| read(address);
        let cache = &mut caches[(at.address_for_lookup() >> 4) as usize % caches.len()];
        let Some(caller) = unwinder.unwind_frame(at, &mut registers, cache, &mut read).or(Err(()))? else {
            return Ok(None);
        };
        #[cfg(target_arch = "x86_64")]
        let fp = registers.bp();
        #[cfg(target_arch = "aarch64")]
        let fp = registers.fp();
        Ok(Some((Frame { sp: registers.sp() as usize, fp: fp as usize }, caller as usize)))
    }

    /// Learns the rule of an address that is not in the cache.
    #[cold]
    #[inline(never)]
    fn learn(unwinder: &Native, caches: &mut [Cache], at: FrameAddress, registers: Registers) -> Rule {
        // The return address may still be in a register there.
        if cfg!(target_arch = "aarch64") {
            return Rule::ASK;
        }
        rule::learn(|frame, read| ask(unwinder, caches, at, native(at, frame, registers), read))
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use super::*;

    pub(crate) fn open() {}

    pub(crate) fn install(modules: &[&'static Module]) {}

    pub(crate) fn walk(registers: Registers, stack: Bounds, frames: &mut [usize]) -> Option<usize> {
        None
    }
}
#[cfg(not(rtprof_supported))]
pub(super) use imp::walk;
#[cfg(not(rtprof_supported))]
pub(crate) use imp::{install, open};
