//! The stack of a thread that a signal has interrupted, captured by the signal's handler.
//!
//! At the interrupted instruction the frame pointer may hold any value: the C library keeps none, and a function may
//! have been at its first instruction. So the walk uses the unwind tables, which say for each instruction where the
//! caller is.
//!
//! A handler runs on the 8 KiB that std gives each thread for its handlers, of which the kernel may have used 3 KiB for
//! the registers, or on a coroutine's stack. So it does its work on a spare stack ([`super::spare`]).
//!
//! The interrupted stack pointer need not point into mapped memory: between the two instructions that switch to another
//! stack it is at the very end of a stack, where the next page may be a guard page, and code that needs one more
//! register may use it for other values. So the page is checked before it is read.

use core::ffi::c_void;

use super::bounds::{self, Bounds};
use super::registers::Registers;
use super::spare::{self, Start};
use super::{MAX_STACK, NO_END, finish, kernel, unwind};

/// The point at which a signal has interrupted the thread.
#[derive(Clone, Copy)]
pub struct Interrupted(Registers);

impl Interrupted {
    /// Reads the registers that the kernel passes to a handler.
    ///
    /// # Safety
    /// `context` is the third argument of a handler that was installed with `SA_SIGINFO`.
    pub unsafe fn new(context: *const c_void) -> Self {
        // SAFETY: the caller passes a handler's third argument, which points to a `ucontext_t`.
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

    /// Returns the point of the interruption in the form of a return address: symbolization subtracts one byte, because
    /// a call ends at its return address.
    pub fn frame(self) -> usize {
        self.0.ip.wrapping_add(1)
    }

    /// Runs `f` on a spare stack with the interrupted thread's stack: the point of the interruption, in the form of a
    /// return address, and all return addresses outwards. Returns `None` if no spare stack or no unwind cache is free
    /// at the moment, or if the stack pointer points to no memory.
    ///
    /// Called in a handler, on the interrupted thread.
    pub fn with_stack<R>(self, f: impl FnOnce(&[usize]) -> R) -> Option<R> {
        let Self(registers) = self;
        let bounds_follow = Start { registers, stack: Bounds::NONE };
        spare::run(bounds_follow, || {
            // Unknown bounds are not looked up here: the signal may have interrupted the look-up itself.
            let foreign = || kernel::is_readable(registers.sp).then(|| Bounds::foreign(registers.sp));
            let stack = bounds::own_stack_at(registers.sp).or_else(foreign)?;
            let mut callers = [0; MAX_STACK];
            let depth = unwind::walk(registers, stack, NO_END, &mut callers)?;
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
