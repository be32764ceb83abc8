//! The signal by which threads are asked for their stacks.
//!
//! The signal is a real-time signal for which the program has no handler. It is chosen at its first use, and our
//! handler stays installed: a signal that a thread receives late would end the process otherwise. If the program
//! installs a handler for it later, another signal is chosen.
//!
//! Effects on the program: a system call that the signal interrupts is restarted (`SA_RESTART`), except for those that
//! never are (signal(7): `poll`, `epoll_wait`, `nanosleep` and others), which return `EINTR`. A signal of this number
//! that rtprof has not sent acts as it would have without rtprof.
//!
//! In a shared library no signal is sent unless the program enables it: there the first access of a thread to our
//! thread-locals may allocate, which a handler must not do.

use core::sync::atomic::{AtomicU8, Ordering};

/// The program has not called `set_thread_signals`.
const UNSAID: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static WANTED: AtomicU8 = AtomicU8::new(UNSAID);

/// Sets whether [`take`](super::take), and what is built on it, as the goroutine profile, ask threads for their stacks
/// by a signal. The default is on, unless rtprof is part of a shared library. While off, no CPU profile can be started;
/// a running one continues.
///
/// A thread that does not wait in rtprof's locks, channels and the like must be interrupted to record its stack. System
/// calls in which it waits continue afterwards, except for some that return `EINTR` (see docs/goroutines.md). Without
/// signals, such a thread has a single frame in the profile, `thread_signals_are_off`.
pub fn set_thread_signals(on: bool) {
    WANTED.store(if on { ON } else { OFF }, Ordering::Relaxed);
}

/// Returns whether threads are asked by signal: see [`set_thread_signals`].
pub fn thread_signals() -> bool {
    match WANTED.load(Ordering::Relaxed) {
        UNSAID => imp::is_in_program(),
        wanted => wanted == ON,
    }
}

#[cfg(rtprof_supported)]
pub(super) use imp::{Delivery, Signal};

#[cfg(rtprof_supported)]
mod imp {
    use core::ffi::{c_int, c_void};
    use core::sync::atomic::{AtomicI32, Ordering};

    pub(super) use crate::disposition::is_in_program;

    use crate::disposition;
    use crate::errno;
    use crate::hook::own_process;
    use crate::stack::Interrupted;

    /// The signal that has our handler; 0 for none.
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    /// Marks our own signals, in a field that the kernel passes through.
    const MARK: c_int = 0x7274_7066;

    /// The beginning of the kernel's `siginfo_t`, for a signal that was sent with a value.
    #[repr(C)]
    struct Info {
        signal: c_int,
        errno: c_int,
        code: c_int,
        #[cfg(target_pointer_width = "64")]
        _pad: c_int,
        process: c_int,
        user: u32,
        value: u64,
        _rest: [u64; 12],
    }

    const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

    /// A signal that has our handler.
    #[derive(Clone, Copy)]
    pub(crate) struct Signal(c_int);

    /// The result of sending the signal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Delivery {
        Sent,
        /// The thread has ended.
        Gone,
        /// Too many signals of this user are pending.
        Full,
        /// The kernel refuses to send it.
        Refused,
    }

    impl Signal {
        /// Returns the signal, after installing our handler if necessary; `None` if no signal is free. Called by the
        /// coordinator.
        pub(crate) fn get() -> Option<Self> {
            let known = SIGNAL.load(Ordering::Relaxed);
            if known != 0 && disposition::is_handled_by(known, handle) {
                return Some(Self(known));
            }
            // Programs rarely use the highest signals, except for the very last ones.
            let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
            let candidates = (first..=last - 4).rev().chain(last - 3..=last);
            // SAFETY: the handler does only what a handler may do, and lives as long as this code, which stays loaded
            // (`init`).
            let install = |signal| unsafe { disposition::install(signal, handle, &[libc::SIG_DFL]) };
            let signal = candidates.into_iter().find(|&signal| install(signal).is_some())?;
            SIGNAL.store(signal, Ordering::Relaxed);
            Some(Self(signal))
        }

        /// Returns whether the signal is in this set, whose bit 0 stands for signal 1.
        pub(crate) fn is_in(self, set: u64) -> bool {
            set >> (self.0 - 1) & 1 != 0
        }

        /// Sends the signal to thread `id` of this process, with the number of a question.
        pub(crate) fn send(self, id: u32, question: u64) -> Delivery {
            let process = own_process();
            let info = Info {
                signal: self.0,
                errno: MARK,
                code: libc::SI_QUEUE,
                _pad: 0,
                process: process as c_int,
                // SAFETY: `getuid` has no preconditions and no side effects.
                user: unsafe { libc::getuid() },
                value: question,
                _rest: [0; 12],
            };
            errno::kept(|| {
                // SAFETY: the kernel reads the structure, which has the size of `siginfo_t`.
                let sent = unsafe {
                    libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, id, self.0, &raw const info)
                };
                match sent {
                    0 => Delivery::Sent,
                    _ if errno::get() == libc::ESRCH => Delivery::Gone,
                    _ if errno::get() == libc::EAGAIN => Delivery::Full,
                    _ => Delivery::Refused,
                }
            })
        }
    }

    // Never inlined, so that it has one address, which identifies it.
    #[inline(never)]
    unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        errno::kept(|| {
            // SAFETY: the kernel passes a whole structure, which begins as `Info` does; in a signal of another kind the
            // fields are arbitrary numbers.
            let info = unsafe { &*info.cast::<Info>() };
            let is_ours =
                info.errno == MARK && info.code == libc::SI_QUEUE && info.process as u32 == own_process();
            if is_ours {
                // SAFETY: `context` is this handler's third argument.
                let interrupted = unsafe { Interrupted::new(context) };
                super::super::asking::answer(info.value, interrupted);
            } else {
                disposition::end_as_without_us(signal);
            }
        });
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    pub(super) fn is_in_program() -> bool {
        true
    }
}
