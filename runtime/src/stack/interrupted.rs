//! The stack of a thread that a signal has interrupted, captured by the signal's handler.
//!
//! Where a signal comes, the frame pointer may be anything: the C library keeps none, and a function may have been in its
//! first instruction. So the first frames are found by the unwind tables, which tell for each instruction where the caller
//! is, and the walk goes on by them.
//!
//! A handler runs on the 8 KiB that std gives to each thread for its handlers, of which the kernel may have used 3 for the
//! registers, or on a coroutine's stack. So it does its work on a spare stack ([`super::spare`]).
//!
//! Because it need not run on the interrupted stack, there may be none: between the two instructions that switch to another
//! stack the pointer is at its very end, where the next page may be a guard page, and code that needs one more register may use
//! this one. So the page is asked about before it is read.

use core::ffi::c_void;

use super::bounds::{self, Bounds};
use super::spare::{self, Start};
use super::{MAX_STACK, Registers, finish, kernel, unwind};

/// Where a signal has interrupted the thread.
#[derive(Clone, Copy)]
pub struct Interrupted(Registers);

impl Interrupted {
    /// From what the kernel hands to a handler.
    ///
    /// # Safety
    /// `context` is the third argument of a handler that was installed with `SA_SIGINFO`.
    pub unsafe fn new(context: *const c_void) -> Self {
        // SAFETY: by the caller's promise it is such a structure.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        let register = |at: libc::c_int| machine.gregs[at as usize] as usize;
        #[cfg(target_arch = "x86_64")]
        let registers = Registers {
            ip: register(libc::REG_RIP),
            sp: register(libc::REG_RSP),
            fp: register(libc::REG_RBP),
        };
        #[cfg(target_arch = "aarch64")]
        let registers = Registers {
            ip: machine.pc as usize,
            sp: machine.sp as usize,
            fp: machine.regs[29] as usize,
            lr: machine.regs[30] as usize,
        };
        Self(registers)
    }

    /// The place of the interruption, as a return address: what looks up frames takes the byte before, for a call ends there.
    pub fn frame(self) -> usize {
        self.0.ip.wrapping_add(1)
    }

    /// Runs `f` on a spare stack with the interrupted thread's stack: the place of the interruption, as a return address,
    /// and all return addresses outwards. `None` if no spare stack or no unwind cache is free at the moment, or the stack
    /// pointer points to no memory.
    ///
    /// In a handler, on the thread that was interrupted.
    pub fn with_stack<R>(self, f: impl FnOnce(&[usize]) -> R) -> Option<R> {
        let Self(registers) = self;
        let bounds_follow = Start { registers, stack: Bounds::NONE };
        spare::run(bounds_follow, || {
            // Not looked up where it is not known: that may have been interrupted.
            let foreign = || kernel::is_readable(registers.sp).then(|| Bounds::foreign(registers.sp));
            let stack = bounds::own_stack_at(registers.sp).or_else(foreign)?;
            let mut callers = [0; MAX_STACK];
            let depth = unwind::walk(registers, stack, &mut callers)?;
            let mut frames = [0; MAX_STACK];
            frames[0] = self.frame();
            let depth = match depth {
                0 => 0,
                _ => finish(&mut callers, depth).min(MAX_STACK - 1),
            };
            frames[1..=depth].copy_from_slice(&callers[..depth]);
            Some(f(&frames[..=depth]))
        })
        .flatten()
    }
}
