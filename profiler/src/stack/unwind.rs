//! The walk by unwind tables (`.eh_frame`), through framehop: about 12 ns a frame, right in code
//! without frame pointers too.
//!
//! What framehop needs lives here: the unwinder (the set of modules), replaced as a whole when
//! modules come and go, and a fixed set of caches made at start:
//!
//! ```text
//!   UNWINDER ──► unwinder of the modules known now      (the old one goes when no walk uses it)
//!   STRIPES  ──► [ lock | caches ] [ lock | caches ] …  one taken by try-lock for each walk
//! ```
//!
//! A cache is 33 KiB and two allocations, too much for every thread and impossible to make in a hook.
//! It has 509 places, one for each remainder of an address, so two return addresses of one stack that
//! share a place evict each other at every walk, at 300 ns each; among 32 frames that is more likely
//! than not. Where stacks are always walked by tables a stripe therefore has several caches, chosen by a
//! hash of the address: over 40 layouts of one program 32 frames took 444 ns with 32 caches (at most
//! 597), and 2,348 ns (at most 4,173) with one. Where frame pointers do the work one is enough.
//!
//! A walk tries the stripe of its thread first, then the others; when all are taken it gives up and
//! the sample keeps its innermost frame alone, counted. Nothing waits, so a stripe whose holder does not
//! exist in a forked child is one stripe less there, not a hang. It is not handed out again: its
//! cache may be half written.
#![cfg_attr(not(rtprof_supported), allow(unused_variables))]

use super::bounds::Bounds;
use crate::modules::Module;

/// The registers a walk starts from, all read at one instruction.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    /// The instruction pointer.
    pub(super) ip: usize,
    /// The stack pointer.
    pub(super) sp: usize,
    /// The frame pointer register, whatever it holds.
    pub(super) fp: usize,
    /// The link register.
    #[cfg(target_arch = "aarch64")]
    pub(super) lr: usize,
}

/// Stack that a walk itself needs. framehop took 15.5 KiB in a release and 53.7 KiB in a debug
/// build; with less than this left the walk is not begun.
const OWN_STACK: usize = if cfg!(debug_assertions) { 80 << 10 } else { 32 << 10 };

#[cfg(rtprof_supported)]
pub(super) use imp::walk;
#[cfg(rtprof_supported)]
pub(crate) use imp::{install, open};

#[cfg(rtprof_supported)]
mod imp {
    use super::*;
    use crate::fork_lock::ForkLock;
    use core::cell::{Cell, UnsafeCell};
    use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    use framehop::{
        CacheNative, ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative,
        Unwinder, UnwinderNative,
    };

    type Native = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;
    type Cache = CacheNative<MustNotAllocateDuringUnwind>;

    /// Two neighbours share no cache line.
    #[repr(align(128))]
    struct Stripe {
        taken: AtomicU32,
        /// How many caches, a power of two.
        count: usize,
        caches: UnsafeCell<Box<[Cache]>>,
    }

    // SAFETY: the caches are only touched by whoever changed `taken` from 0 to 1.
    unsafe impl Sync for Stripe {}

    static UNWINDER: AtomicPtr<Native> = AtomicPtr::new(core::ptr::null_mut());
    /// Replaced as a whole; old ones are kept, as a walk may be using one.
    static STRIPES: AtomicPtr<Box<[Stripe]>> = AtomicPtr::new(core::ptr::null_mut());
    /// Orders the makers of stripes; not taken by walks.
    static OPENING: ForkLock = ForkLock::new();
    /// The stripes that were replaced.
    static RETIRED: AtomicPtr<Box<[Stripe]>> = AtomicPtr::new(core::ptr::null_mut());
    static NEXT_STRIPE: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        // The stripe this thread tries first, plus one; 0 before its first walk.
        static PREFERRED: Cell<u32> = const { Cell::new(0) };
    }

    /// Makes the caches. `often` says that stacks are always walked by tables, and not only where frame
    /// pointers fail. Not for hooks.
    pub(crate) fn open(often: bool) {
        let _held = OPENING.lock();
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        let count = (2 * cores).clamp(4, 64);
        // 8 MiB of caches at most, however many cores there are.
        let caches = if often { (256 / count).clamp(4, 32).next_power_of_two() } else { 1 };
        if stripes().first().is_some_and(|s| s.count >= caches) {
            return;
        }
        let fresh: Box<[Stripe]> = (0..count).map(|_| Stripe::new(caches)).collect();
        // At most once in a process: from few caches to many. Noted as retired first, so that
        // `renew_caches` misses neither.
        RETIRED.store(STRIPES.load(Ordering::Acquire), Ordering::Release);
        STRIPES.store(Box::into_raw(Box::new(fresh)), Ordering::Release);
    }

    /// Makes these modules the ones that walks know. Not for hooks.
    pub(crate) fn install(modules: &[&'static Module]) {
        let mut unwinder = Native::new();
        for module in modules.iter().filter(|m| m.is_loaded()) {
            let (header, header_at) = module.unwind.header;
            let (frames, frames_at) = module.unwind.frames;
            if frames.is_empty() {
                continue;
            }
            // framehop wants addresses in a numbering of the module's own beside the bytes found in
            // memory. The file's could begin anywhere; this one begins at 0.
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
        let old = UNWINDER.swap(Box::into_raw(Box::new(unwinder)), Ordering::AcqRel);
        if renew_caches() && !old.is_null() {
            // SAFETY: every stripe was ours for a moment since the swap, so no walk that began before it
            // is going on, and later ones find the new unwinder.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// framehop tells stale cache entries by a 16-bit generation, which wraps in a program that loads
    /// plugins for ever: give every stripe fresh caches. Returns whether all could be had; one that stays
    /// in use (by a ghost in a forked child) keeps its entries, and the old unwinder is leaked.
    fn renew_caches() -> bool {
        let mut all = true;
        // SAFETY: installed stripes are leaked.
        let retired = unsafe { RETIRED.load(Ordering::Acquire).as_ref() }.map_or(&[][..], |stripes| stripes);
        for stripe in stripes().iter().chain(retired) {
            let fresh = new_caches(stripe.count);
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
                // SAFETY: `taken` is ours.
                let old = unsafe { core::mem::replace(&mut *stripe.caches.get(), fresh) };
                stripe.release();
                drop(old);
            }
        }
        all
    }

    fn stripes() -> &'static [Stripe] {
        // SAFETY: installed stripes are leaked.
        unsafe { STRIPES.load(Ordering::Acquire).as_ref() }.map_or(&[], |stripes| stripes)
    }

    fn new_caches(count: usize) -> Box<[Cache]> {
        (0..count).map(|_| Cache::new_in()).collect()
    }

    impl Stripe {
        fn new(count: usize) -> Self {
            Self { taken: AtomicU32::new(0), count, caches: UnsafeCell::new(new_caches(count)) }
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

    /// The cache for an address, of `count` caches, a power of two.
    fn cache_of(address: u64, count: usize) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (count - 1)
    }

    /// Walks from `registers`; fills `frames` with return addresses, leaf first, and returns how
    /// many. `None` when no cache was free or too little stack is left.
    pub(crate) fn walk(registers: Registers, stack: Bounds, frames: &mut [usize]) -> Option<usize> {
        if registers.sp - stack.low.min(registers.sp) < OWN_STACK && !may_grow(stack) {
            return None;
        }
        let stripe = take_stripe()?;
        // Loaded after the stripe was taken: `retire` relies on it.
        // SAFETY: an unwinder is freed only after it was replaced and each stripe was seen free.
        let Some(unwinder) = (unsafe { UNWINDER.load(Ordering::Acquire).as_ref() }) else {
            stripe.release();
            return None;
        };
        // SAFETY: `taken` is ours until `release` below.
        let caches = unsafe { &mut **stripe.caches.get() };
        let mut read = |address: u64| {
            let at = address as usize;
            if at < registers.sp || at.saturating_add(8) > stack.high || !at.is_multiple_of(8) {
                return Err(());
            }
            // SAFETY: within the part of this thread's stack that is in use, and aligned.
            Ok(unsafe { (at as *const u64).read() })
        };
        #[cfg(target_arch = "x86_64")]
        let mut regs = UnwindRegsNative::new(registers.ip as u64, registers.sp as u64, registers.fp as u64);
        #[cfg(target_arch = "aarch64")]
        let mut regs = UnwindRegsNative::new_with_ptr_auth_mask(
            framehop::aarch64::PtrAuthMask::new_24_40(),
            registers.lr as u64,
            registers.sp as u64,
            registers.fp as u64,
        );
        let mut at = FrameAddress::from_instruction_pointer(registers.ip as u64);
        let mut depth = 0;
        while depth < frames.len() {
            // An error is how most stacks end: the outermost frame's caller cannot be found.
            let cache = &mut caches[cache_of(at.address_for_lookup(), stripe.count)];
            let Ok(Some(caller)) = unwinder.unwind_frame(at, &mut regs, cache, &mut read) else {
                break;
            };
            let Some(next) = FrameAddress::from_return_address(caller) else {
                break;
            };
            frames[depth] = super::super::frame_pointer::plain_address(caller as usize);
            depth += 1;
            at = next;
        }
        stripe.release();
        Some(depth)
    }

    /// The main thread's stack grows on demand, so its low end says nothing about what is left.
    fn may_grow(stack: Bounds) -> bool {
        stack.contains(super::super::outermost::main_stack())
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use super::*;

    pub(crate) fn open(often: bool) {}

    pub(crate) fn install(modules: &[&'static Module]) {}

    pub(crate) fn walk(registers: Registers, stack: Bounds, frames: &mut [usize]) -> Option<usize> {
        None
    }
}
#[cfg(not(rtprof_supported))]
pub(super) use imp::walk;
#[cfg(not(rtprof_supported))]
pub(crate) use imp::{install, open};
