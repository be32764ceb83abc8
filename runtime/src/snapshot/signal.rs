//! The signal by which threads are asked for their stacks.
//!
//! The signal is one of those that are ignored by default ([`crate::signal::shared_signal`]), whose handler is installed while a
//! snapshot asks. Where the program has handlers for all of them, it is a real-time signal for which the program has none. Such a
//! signal ends a process by default, so our handler stays installed: a thread may receive the signal late. (A program that
//! this one is replaced with, by `exec`, may receive it too, and is ended.) If the program installs a handler for it later,
//! another signal is chosen.
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

/// Sets whether [`take`](super::take), and what is built on it (the goroutine profile, for example), ask threads for
/// their stacks by a signal. The default is on, unless rtprof is part of a shared library. While signals are off, no
/// CPU profile can be started; a running one continues.
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
pub(crate) use imp::signalled;
#[cfg(rtprof_supported)]
pub(super) use imp::{Delivery, Signal};

#[cfg(rtprof_supported)]
mod imp {
    use core::ffi::{c_int, c_void};
    use core::sync::atomic::{AtomicI32, Ordering};

    pub(super) use crate::signal::disposition::is_in_program;

    use super::super::asking;
    use crate::hook::errno;
    use crate::hook::own_process;
    use crate::signal::alternate_stack;
    use crate::signal::disposition;
    use crate::signal::shared_signal::{self, SharedSignal, User};
    use crate::stack::Interrupted;
    use crate::thread::kernel_thread;

    /// The real-time signal that has our handler; 0 for none.
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    /// Marks our own signals, in a field that the kernel passes through.
    const MARK: c_int = 0x7274_7066;
    /// The kernel's `siginfo_t`, for a signal that was sent with a value.
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

    /// A signal that has our handler, for a snapshot.
    pub(crate) struct Signal {
        number: c_int,
        shared: Option<SharedSignal>,
    }

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
            let shared = shared_signal::take(User::Snapshot);
            let number = shared.as_ref().map(SharedSignal::number).or_else(Self::real_time)?;
            alternate_stack::wait_for_handlers(number);
            Some(Self { number, shared })
        }

        /// Returns whether the signal still has our handler: the program may have installed its own.
        pub(crate) fn is_ours(&self) -> bool {
            self.shared
                .as_ref()
                .map_or_else(|| disposition::is_handled_by(self.number, handle), SharedSignal::is_ours)
        }

        fn real_time() -> Option<c_int> {
            let known = SIGNAL.load(Ordering::Relaxed);
            if known != 0 && disposition::is_handled_by(known, handle) {
                return Some(known);
            }
            // Programs rarely use the highest signals, except for the very last ones.
            let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
            let candidates = (first..=last - 4).rev().chain(last - 3..=last);
            // SAFETY: the handler does only what a handler may do, and lives as long as this code, which stays loaded
            // (`init`).
            let install = |signal| unsafe { disposition::install(signal, handle, &[libc::SIG_DFL]) };
            let signal = candidates.into_iter().find(|&signal| install(signal).is_some())?;
            SIGNAL.store(signal, Ordering::Relaxed);
            Some(signal)
        }

        /// Returns whether the signal is in this set, whose bit 0 stands for signal 1.
        pub(crate) fn is_in(&self, set: u64) -> bool {
            set >> (self.number - 1) & 1 != 0
        }

        /// Sends the signal to thread `id` of this process, with the number of a question.
        pub(crate) fn send(&self, id: u32, question: u64) -> Delivery {
            let process = own_process();
            let info = Info {
                signal: self.number,
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
                    libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, id, self.number, &raw const info)
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
            // SAFETY: the arguments are this handler's.
            if !unsafe { signalled(info, context) } {
                disposition::end_as_without_us(signal);
            }
        });
    }

    /// Answers the question that came with a signal. Returns whether there was one: `false` for a signal of another sender.
    ///
    /// # Safety
    /// The arguments are those of a signal handler.
    pub(crate) unsafe fn signalled(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
        // SAFETY: the kernel passes a whole structure, which begins as `Info` does; in a signal of another kind the fields
        // are arbitrary numbers.
        let info = unsafe { &*info.cast::<Info>() };
        let question = if info.errno == MARK && info.code == libc::SI_QUEUE {
            Some(info.value).filter(|_| info.process as u32 == own_process())
        } else if info.code == libc::SI_USER && info.process == 0 {
            // So the kernel delivers a signal, except for real-time ones, when too many of the user are pending.
            asking::question_to(kernel_thread::thread_id())
        } else {
            None
        };
        let Some(question) = question else { return false };
        // SAFETY: `context` is a handler's third argument.
        asking::answer(question, unsafe { Interrupted::new(context) });
        true
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    pub(super) fn is_in_program() -> bool {
        true
    }
}
