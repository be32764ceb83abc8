//! Stack space for hooks that begin where the program's stack is nearly full.
//!
//! Problem: a program may sample an allocation with 3 KiB left of its stack, on a coroutine of 16 KiB or deep in a
//! recursion under a small limit. The remaining space would have been enough for the program; a hook needs 1.8 KiB
//! (6.5 in debug builds), and the reading of unwind tables 16 KiB (40 in debug builds). Where that overflows the stack the
//! program dies.
//!
//! Scheme: a hook checks for room before it needs it ([`with_room`]). Where there is too little, its work is done on
//! another stack, one of a few that were mapped at start:
//!
//! ```text
//!   SPARES ─► [ guard page | stack ] [ guard page | stack ] …       taken with the process number
//!                                ▲
//!   program's stack  … hook │ run ┘ registers and bounds of the program's stack are kept for `capture`
//! ```
//!
//! All signals are blocked while the spare stack is in use: a handler without an alternate stack would run on the spare
//! stack, whose size it does not know; a handler with an alternate stack would overwrite it if the hook was running
//! there. Blocking costs two system calls, so a spare stack is used only where room is missing. The closure is short,
//! and calls no code of the program.
//!
//! A spare stack that a thread held at the instant of a fork carries the parent's process number in the child: it is
//! free there. (Not where the kernel cannot wipe a page at a fork: there a child of `vfork` has a different number than
//! its parent.)

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::bounds::{self, Bounds};
use super::registers::{Registers, registers};
use crate::counters::{CountedProfile, Counter};

/// The stack space that a hook needs without reading unwind tables, including its caller in the allocator or lock.
/// Measured: 1.8 KiB, and in debug builds 6.5 KiB.
const HOOK: usize = if cfg!(debug_assertions) { 12 << 10 } else { 4 << 10 };

/// The stack space that a hook needs with a text of 8 KiB on the stack.
const TEXT: usize = HOOK + (12 << 10);

/// The stack space that a hook needs before its first check for room, including the allocator.
const LEAST: usize = if cfg!(debug_assertions) { 4 << 10 } else { 2 << 10 };

/// Samples that found neither room on the stack nor a free spare stack.
pub static WITHOUT_ROOM: Counter = Counter::new(CountedProfile::ALL, || {
    "samples were dropped or have no stack: too little of the program's stack was left, and no spare stack free".into()
});

/// The start of a walk, for hooks on a spare stack.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) registers: Registers,
    pub(super) stack: Bounds,
}

/// Returns whether there is enough stack for a hook to begin at all.
#[cold]
pub fn may_begin() -> bool {
    has_room_for(registers().sp, LEAST)
}

/// Returns whether there is room for the work of a hook.
#[inline]
pub fn has_room() -> bool {
    has_room_for(registers().sp, HOOK)
}

/// Runs the work of a hook where it has room: here, or on a spare stack. If no spare stack is free, returns `None`
/// without running it, and counts the loss.
#[inline(always)]
pub fn with_room<R>(f: impl FnOnce() -> R) -> Option<R> {
    // Called here in every case but the rare one, so that a place in the program has a single stack.
    if has_room() { Some(f()) } else { elsewhere(f) }
}

/// Runs `f` as [`with_room`] does, with room for a text of some kilobytes on the stack. Not counted: no sample is lost.
#[cold]
#[inline(never)]
pub fn with_room_for_text<R>(f: impl FnOnce() -> R) -> Option<R> {
    if has_room_for(registers().sp, TEXT) { Some(f()) } else { on_spare(f) }
}

#[inline(always)]
fn on_spare<R>(f: impl FnOnce() -> R) -> Option<R> {
    let registers = registers();
    imp::run(Start { registers, stack: bounds::of_stack_at(registers.sp) }, f)
}

/// Runs `f` as [`with_room`] does, with room for reading unwind tables.
#[cold]
#[inline(never)]
pub(super) fn with_room_to_unwind<R>(f: impl FnOnce() -> R) -> Option<R> {
    let sp = registers().sp;
    // Checking a foreign stack page by page takes longer than switching to a spare stack.
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

/// Returns whether there is room, as [`has_room_for`] does, where `sp` is not on the thread's own stack as far as
/// known.
#[cold]
fn has_room_elsewhere(sp: usize, need: usize) -> bool {
    start_of(sp).is_some() || bounds::of_stack_at(sp).has_room(sp, need)
}

/// Runs `f` on a spare stack. If none is free, returns `None` without running it, and counts the loss.
#[cold]
#[inline(never)]
pub fn elsewhere<R>(f: impl FnOnce() -> R) -> Option<R> {
    let result = on_spare(f);
    if result.is_none() {
        WITHOUT_ROOM.add();
    }
    result
}

pub use imp::most_used;
pub(crate) use imp::open;
pub(super) use imp::{run, start_of};

#[cfg(rtprof_supported)]
mod imp {
    use super::*;
    use crate::lock::holder_lock::HolderLock;
    use crate::memory::mapping::{self, PAGE};
    use crate::process;
    use core::arch::asm;
    use core::ffi::c_void;
    use core::hint::spin_loop;

    /// The largest need, with a margin for the frames in between.
    const SIZE: usize = super::super::unwind::OWN_STACK + (16 << 10);
    const STRIDE: usize = PAGE + SIZE;
    /// How often all stacks are tried before the sample is given up. They are held for some microseconds.
    const ROUNDS: usize = 1000;

    struct Spare {
        /// The process whose thread is on the stack; 0 or another process's number means free.
        holder: HolderLock,
        start: UnsafeCell<Option<Start>>,
    }

    // SAFETY: `start` is only accessed by the thread that has set `holder` to this process's number.
    unsafe impl Sync for Spare {}

    struct Spares {
        /// The address of the lowest stack's guard page.
        base: usize,
        all: Box<[Spare]>,
    }

    /// Leaked. Null until the first [`open`] that obtained memory.
    static SPARES: AtomicPtr<Spares> = AtomicPtr::new(core::ptr::null_mut());

    /// Maps the stacks. Called by [`crate::init::open`], by one thread at a time; must not be called in a hook.
    pub(crate) fn open() {
        if spares().is_some() {
            return;
        }
        // Computed here, because handlers need it while they are still on their small stack, which has no room for the
        // first computation.
        process::number();
        let count = std::thread::available_parallelism().map_or(4, usize::from).clamp(4, 16);
        let Some(base) = mapping::reserve(count * STRIDE) else { return };
        for at in 0..count {
            // SAFETY: the range is within the reservation, behind the guard page of each stack.
            if !unsafe { mapping::commit(base.add(at * STRIDE + PAGE), SIZE) } {
                // SAFETY: the reservation was made above and is not used.
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
        // SAFETY: a stored pointer is leaked, so it stays valid.
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

    /// Returns the maximum number of bytes ever used of a spare stack, among those that are free now, and the size of
    /// each. Returns `None` where there are none. The part of a stack that was never used is still zero, as the kernel
    /// has mapped it.
    pub fn most_used() -> Option<(usize, usize)> {
        let spares = spares()?;
        let me = process::number();
        let used = |(at, spare): (usize, &Spare)| {
            spare.holder.try_take(me).ok()?;
            let low = core::ptr::with_exposed_provenance::<usize>(spares.base + at * STRIDE + PAGE);
            // SAFETY: mapped by `open`, and this thread holds the stack until it releases it.
            let words = unsafe { core::slice::from_raw_parts(low, SIZE / size_of::<usize>()) };
            let untouched = words.iter().take_while(|&&word| word == 0).count();
            spare.holder.release();
            Some(SIZE - untouched * size_of::<usize>())
        };
        Some((spares.all.iter().enumerate().filter_map(used).max()?, SIZE))
    }

    /// Returns the start of a walk for a hook whose stack pointer is `sp`, if it is on a spare stack.
    #[cold]
    pub(crate) fn start_of(sp: usize) -> Option<Start> {
        let spare = spares()?.at(sp)?;
        // SAFETY: this thread runs on that stack, so it holds it.
        unsafe { *spare.start.get() }
    }

    /// Runs `f` on a spare stack. Returns `None` if none is free.
    pub(crate) fn run<R>(start: Start, f: impl FnOnce() -> R) -> Option<R> {
        struct Job<F, R> {
            f: Option<F>,
            result: Option<R>,
        }

        /// Calls the closure of a job. A panic aborts here, as in any hook.
        extern "C" fn call<F: FnOnce() -> R, R>(job: *mut c_void) {
            // SAFETY: `run` passes a pointer to its local, and waits for this call.
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
            // SAFETY: `take` gave this thread of this process the stack until it is released. `top` is its end and is
            // aligned, `call` accepts the job that is passed, and signals are blocked, so that no handler runs on the
            // stack.
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

    /// Replaces the mask of blocked signals, and returns the previous one. By a system call: the C library leaves those
    /// signals unblocked that it uses itself.
    fn set_signals(mask: u64) -> Option<u64> {
        let mut before = 0_u64;
        // SAFETY: the call reads and writes these locals, and receives their size.
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

    /// Calls `f` with the stack pointer at `top`, and returns on the current stack.
    ///
    /// # Safety
    /// `top` is the aligned (16 bytes) end of a stack that only this thread uses and that is large enough. `f` may be
    /// called with `data`.
    unsafe fn on_stack(top: usize, f: extern "C" fn(*mut c_void), data: *mut c_void) {
        // The stack pointer is kept in a callee-saved register. The frame pointer is not changed, so that debuggers and
        // system-wide profilers can walk back to the previous stack.
        // SAFETY: the caller provides the stack and allows the call; afterwards the stack pointer has its previous
        // value.
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
        // SAFETY: the caller provides the stack and allows the call; afterwards the stack pointer has its previous
        // value.
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
