//! Room for hooks that begin where the program's stack has little left.
//!
//! Problem: a program may sample an allocation with 3 KiB left of its stack, on a coroutine of 16 KiB or deep in a
//! recursion under a small limit. It would have got by with what is left; a hook needs up to 5 KiB (debug builds), and
//! the reading of unwind tables 16 KiB (40 in debug builds). Where that overflows the stack the program dies.
//!
//! Scheme: a hook asks for room before it needs it ([`with_room`]). Where there is too little, its work is done on
//! another stack, one of a few that were mapped at start:
//!
//! ```text
//!   SPARES ─► [ guard page | stack ] [ guard page | stack ] …       taken by the number of the process
//!                                ▲
//!   program's stack  … hook │ run ┘ registers and bounds of the program's stack are kept for `capture`
//! ```
//!
//! All signals are blocked meanwhile: a handler without an alternate stack would run on ours, whose size it does not
//! know, and one with an alternate stack would overwrite it if it is what we came from. That costs two system calls, so
//! it is done only where room is missing. What is in the closure is short, and calls no code of the program.
//!
//! A spare stack that a thread held at the instant of a fork carries the number of the parent in the child: it is free
//! there. (Not where the kernel cannot wipe a page at a fork: a child of `vfork` has another number than its parent then.)

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::Registers;
use super::bounds::{self, Bounds};
use crate::counters::COUNTERS;

/// What a hook needs of the stack without reading unwind tables, its caller in the allocator or lock included.
/// Measured: 1.8 KiB, and in debug builds 6.5 KiB.
const HOOK: usize = if cfg!(debug_assertions) { 12 << 10 } else { 4 << 10 };

/// What a hook needs with a text of 8 KiB on the stack.
const TEXT: usize = HOOK + (12 << 10);

/// What a hook needs before it can have asked for room, and the allocator besides.
const LEAST: usize = if cfg!(debug_assertions) { 4 << 10 } else { 2 << 10 };

/// Where a walk is to begin, for hooks on a spare stack.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) registers: Registers,
    pub(super) stack: Bounds,
}

/// Whether there is stack enough for a hook to begin at all.
#[cold]
pub fn may_begin() -> bool {
    has_room_for(super::registers().sp, LEAST)
}

/// Whether there is room for the work of a hook.
#[inline]
pub fn has_room() -> bool {
    has_room_for(super::registers().sp, HOOK)
}

/// Runs the work of a hook where it has room: here, or on a spare stack. `None`, counted, if there is none free: then it
/// did not run.
#[inline(always)]
pub fn with_room<R>(f: impl FnOnce() -> R) -> Option<R> {
    // Called here in every case but the rare one, so that a place in the program has one stack.
    if has_room() { Some(f()) } else { elsewhere(f) }
}

/// As [`with_room`] for what formats a text of some kilobytes on the stack. Not counted: no sample is lost.
#[cold]
#[inline(never)]
pub fn with_room_for_text<R>(f: impl FnOnce() -> R) -> Option<R> {
    if has_room_for(super::registers().sp, TEXT) { Some(f()) } else { on_spare(f) }
}

#[inline(always)]
fn on_spare<R>(f: impl FnOnce() -> R) -> Option<R> {
    let registers = super::registers();
    imp::run(Start { registers, stack: bounds::of_stack_at(registers.sp) }, f)
}

/// As [`with_room`] for reading unwind tables.
#[cold]
#[inline(never)]
pub(super) fn with_room_to_unwind<R>(f: impl FnOnce() -> R) -> Option<R> {
    let sp = super::registers().sp;
    // A foreign stack is asked about page by page, which takes longer than to do without.
    let has_room = start_of(sp).is_some() || {
        let stack = bounds::of_stack_at(sp);
        !stack.is_foreign && stack.has_room(sp, super::unwind::OWN_STACK)
    };
    if has_room { Some(f()) } else { elsewhere(f) }
}

#[inline(always)]
fn has_room_for(sp: usize, need: usize) -> bool {
    match bounds::own_stack_at(sp) {
        Some(own) => own.has_room(sp, need),
        None => has_room_elsewhere(sp, need),
    }
}

/// As [`has_room_for`], where `sp` is not on the thread's own stack as far as its bounds are known.
#[cold]
fn has_room_elsewhere(sp: usize, need: usize) -> bool {
    start_of(sp).is_some() || bounds::of_stack_at(sp).has_room(sp, need)
}

/// Runs `f` on a spare stack. `None`, counted, if there is none free: then it did not run.
#[cold]
#[inline(never)]
pub fn elsewhere<R>(f: impl FnOnce() -> R) -> Option<R> {
    let result = on_spare(f);
    if result.is_none() {
        COUNTERS.samples_without_room.add();
    }
    result
}

pub use imp::most_used;
pub(crate) use imp::open;
pub(super) use imp::{run, start_of};

#[cfg(rtprof_supported)]
mod imp {
    use super::*;
    use crate::holder_lock::HolderLock;
    use crate::mapping::{self, PAGE};
    use crate::process;
    use core::arch::asm;
    use core::ffi::c_void;
    use core::hint::spin_loop;

    /// The largest need there is, with what lies between.
    const SIZE: usize = super::super::unwind::OWN_STACK + (16 << 10);
    const STRIDE: usize = PAGE + SIZE;
    /// How often all are tried before the sample is given up. They are held for some microseconds.
    const ROUNDS: usize = 1000;

    struct Spare {
        /// The process whose thread is on it; 0, or another process's number: it is free.
        holder: HolderLock,
        start: UnsafeCell<Option<Start>>,
    }

    // SAFETY: `start` is only touched by the thread that has set `holder` to this process's number.
    unsafe impl Sync for Spare {}

    struct Spares {
        /// Of the lowest one's guard page.
        base: usize,
        all: Box<[Spare]>,
    }

    /// Leaked. Null until the first [`open`] that had memory.
    static SPARES: AtomicPtr<Spares> = AtomicPtr::new(core::ptr::null_mut());

    /// Maps the stacks. By one thread at a time, of [`crate::init::open`]; not for hooks.
    pub(crate) fn open() {
        if spares().is_some() {
            return;
        }
        // Handlers ask for it on the little stack that they begin on: not for the first time.
        process::number();
        let count = std::thread::available_parallelism().map_or(4, usize::from).clamp(4, 16);
        let Some(base) = mapping::reserve(count * STRIDE) else { return };
        for at in 0..count {
            // SAFETY: within the reservation, behind the guard page of each.
            if !unsafe { mapping::commit(base.add(at * STRIDE + PAGE), SIZE) } {
                // SAFETY: made above and not used.
                unsafe { mapping::unmap(base, count * STRIDE) };
                return;
            }
        }
        let all = (0..count)
            .map(|_| Spare { holder: HolderLock::new(AtomicU32::new(0)), start: UnsafeCell::new(None) })
            .collect();
        let spares = Box::new(Spares { base: base.as_ptr().expose_provenance(), all });
        SPARES.store(Box::into_raw(spares), Ordering::Release);
    }

    fn spares() -> Option<&'static Spares> {
        // SAFETY: what is stored is leaked.
        unsafe { SPARES.load(Ordering::Acquire).as_ref() }
    }

    impl Spares {
        fn at(&self, address: usize) -> Option<&Spare> {
            self.all.get(address.checked_sub(self.base)? / STRIDE)
        }

        fn take(&self) -> Option<(&Spare, usize)> {
            let me = process::number();
            for _ in 0..ROUNDS {
                for (at, spare) in self.all.iter().enumerate() {
                    let holder = spare.holder.holder();
                    let is_free = holder == 0 || process::is_shared_with_vfork() && holder != me;
                    if is_free && spare.holder.try_take_from(holder, me).is_ok() {
                        return Some((spare, self.base + (at + 1) * STRIDE));
                    }
                }
                spin_loop();
            }
            None
        }
    }

    /// The most bytes that were ever used of a spare stack, of those that are free now, and how many each has. `None` where
    /// there are none. Below what was used a stack is still as the kernel has mapped it: zeros.
    pub fn most_used() -> Option<(usize, usize)> {
        let spares = spares()?;
        let me = process::number();
        let used = |(at, spare): (usize, &Spare)| {
            spare.holder.try_take(me).ok()?;
            let low = core::ptr::with_exposed_provenance::<usize>(spares.base + at * STRIDE + PAGE);
            // SAFETY: mapped by `open`, and this thread's alone until it is released.
            let words = unsafe { core::slice::from_raw_parts(low, SIZE / size_of::<usize>()) };
            let untouched = words.iter().take_while(|&&word| word == 0).count();
            spare.holder.release();
            Some(SIZE - untouched * size_of::<usize>())
        };
        Some((spares.all.iter().enumerate().filter_map(used).max()?, SIZE))
    }

    /// Where a walk begins for a hook whose stack pointer is `sp`, if it is on a spare stack.
    #[cold]
    pub(crate) fn start_of(sp: usize) -> Option<Start> {
        let spare = spares()?.at(sp)?;
        // SAFETY: this thread is on that stack, so it holds it.
        unsafe { *spare.start.get() }
    }

    /// Runs `f` on a spare stack. `None` if none is free.
    pub(crate) fn run<R>(start: Start, f: impl FnOnce() -> R) -> Option<R> {
        struct Job<F, R> {
            f: Option<F>,
            result: Option<R>,
        }

        /// A panic aborts here, as in any hook.
        extern "C" fn call<F: FnOnce() -> R, R>(job: *mut c_void) {
            // SAFETY: `run` passes its own local, and waits.
            let job = unsafe { &mut *job.cast::<Job<F, R>>() };
            job.result = job.f.take().map(|f| f());
        }

        fn thunk<F: FnOnce() -> R, R>(_: &Job<F, R>) -> extern "C" fn(*mut c_void) {
            call::<F, R>
        }

        let spares = spares()?;
        let before = set_signals(u64::MAX)?;
        let mut job = Job { f: Some(f), result: None };
        if let Some((spare, top)) = spares.take() {
            // SAFETY: `take` made the stack this thread's, in this process, until it is released. `top` ends it and
            // is aligned, `call` takes what it is given, and signals are blocked, so that no handler runs on it.
            unsafe {
                *spare.start.get() = Some(start);
                on_stack(top, thunk(&job), (&raw mut job).cast());
                *spare.start.get() = None;
            }
            spare.holder.release();
        }
        set_signals(before);
        job.result
    }

    /// Replaces the mask of blocked signals, and returns what it was. By a system call: the C library leaves those that
    /// it uses itself unblocked.
    fn set_signals(mask: u64) -> Option<u64> {
        let mut before = 0_u64;
        // SAFETY: the call reads and writes these locals, whose size it gets.
        let n = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const mask,
                &raw mut before,
                size_of::<u64>(),
            )
        };
        (n == 0).then_some(before)
    }

    /// Calls `f` with the stack pointer at `top`, and comes back to this stack.
    ///
    /// # Safety
    /// `top` is the end of a stack that is this thread's alone and large enough, and aligned to 16. `f` may be called
    /// with `data`.
    unsafe fn on_stack(top: usize, f: extern "C" fn(*mut c_void), data: *mut c_void) {
        // The stack pointer waits in a register that functions preserve. The frame
        // pointer is left as it is, so that debuggers and profilers of the machine find their way back.
        // SAFETY: by the caller's promise; afterwards the stack pointer is what it was.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                "mov r12, rsp",
                "mov rsp, {top}",
                "call {f}",
                "mov rsp, r12",
                out("r12") _,
                top = in(reg) top,
                f = in(reg) f,
                in("rdi") data,
                clobber_abi("C"),
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                "mov x20, sp",
                "mov sp, {top}",
                "blr {f}",
                "mov sp, x20",
                out("x20") _,
                top = in(reg) top,
                f = in(reg) f,
                in("x0") data,
                clobber_abi("C"),
            );
        }
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use super::Start;

    pub(crate) fn open() {}

    pub fn most_used() -> Option<(usize, usize)> {
        None
    }

    pub(crate) fn start_of(_sp: usize) -> Option<Start> {
        None
    }

    pub(crate) fn run<R>(_start: Start, f: impl FnOnce() -> R) -> Option<R> {
        Some(f())
    }
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests;
