//! `SIGURG` and `SIGWINCH`, which goroutine snapshots and the CPU sampler share.
//!
//! Both are ignored by default, and few programs wait for them. So a signal of ours that is late is harmless: after the work for
//! which it was sent, in a thread that has blocked it, and in a program that has replaced this one by `exec`. (Go chose
//! `SIGURG` for its preemption for the same reason.) There are only two of them, and a program may have a handler for one:
//! so both users may have the same signal at the same time, and the handler passes each signal on by what its sender has put
//! into it. The handler is installed while there is a user.
//!
//! A signal of such a number that arrives while another one is pending for the thread is dropped by the kernel. Both users
//! expect that: a thread that has not answered is asked again, and a sample counts the periods since the one before.
//!
//! Lock: `CHANGING`, while the users of a signal change; taken over in a forked child.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::hook::errno;
use crate::lock::fork_lock::ForkLock;
use crate::memory::atomic_ref::AtomicRef;
use crate::signal::disposition;
use crate::snapshot::signal;

/// Who uses a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Goroutine snapshots, which ask threads for their stacks.
    Snapshot = 1,
    /// The CPU sampler.
    Sampler = 2,
}

/// A signal that has our handler for this user, until it is dropped.
#[derive(Debug)]
pub struct SharedSignal {
    signal: &'static Shared,
    user: User,
}

/// The function of the CPU sampler that handles its signals.
pub type Sample = unsafe fn(&libc::siginfo_t, *mut c_void);

#[derive(Debug)]
struct Shared {
    number: c_int,
    /// The sum of the [`User`]s.
    users: AtomicU8,
    /// The action before ours.
    before: AtomicUsize,
}

/// In the order in which they are tried.
static SIGNALS: [Shared; 2] = [Shared::new(libc::SIGURG), Shared::new(libc::SIGWINCH)];
static CHANGING: ForkLock = ForkLock::new();
static SAMPLE: AtomicRef<Sample> = AtomicRef::none();

/// Sets the function that handles the sampler's signals.
pub fn sample_with(sample: &'static Sample) {
    SAMPLE.set(Some(sample));
}

/// Takes a signal, and installs our handler if there was no other user. `None` if the program has handlers for both. Must not
/// be called in a hook.
pub fn take(user: User) -> Option<SharedSignal> {
    let _held = CHANGING.lock();
    let signal = SIGNALS.iter().find(|signal| signal.is_ours() || signal.install())?;
    signal.users.fetch_or(user as u8, Ordering::Relaxed);
    Some(SharedSignal { signal, user })
}

/// Gives all signals back in a forked child, which has inherited the handlers, and has no user.
pub fn forked() {
    let _held = CHANGING.lock();
    for signal in &SIGNALS {
        if signal.users.swap(0, Ordering::Relaxed) != 0 {
            signal.restore();
        }
    }
}

impl SharedSignal {
    /// Returns the signal's number.
    pub fn number(&self) -> c_int {
        self.signal.number
    }

    /// Returns whether our handler is still installed: the program may have installed its own.
    pub fn is_ours(&self) -> bool {
        self.signal.is_ours()
    }
}

impl Drop for SharedSignal {
    fn drop(&mut self) {
        let _held = CHANGING.lock();
        if self.signal.users.fetch_and(!(self.user as u8), Ordering::Relaxed) == self.user as u8 {
            self.signal.restore();
        }
    }
}

impl Shared {
    const fn new(number: c_int) -> Self {
        Self { number, users: AtomicU8::new(0), before: AtomicUsize::new(libc::SIG_DFL) }
    }

    /// Whether our handler is installed: also without a user, if the program has saved it as the action before its own, and has
    /// restored it.
    fn is_ours(&self) -> bool {
        disposition::is_handled_by(self.number, handle)
    }

    /// Installs our handler unless the program has one.
    fn install(&self) -> bool {
        // SAFETY: the handler does only what a handler may do, and lives as long as this code, which stays loaded (`init`).
        let before = unsafe { disposition::install(self.number, handle, &[libc::SIG_DFL, libc::SIG_IGN]) };
        before.inspect(|before| self.before.store(*before, Ordering::Relaxed)).is_some()
    }

    fn restore(&self) {
        disposition::restore_ignored(self.number, handle, self.before.load(Ordering::Relaxed));
    }
}

// Never inlined, so that it has one address, which identifies it.
#[inline(never)]
unsafe extern "C" fn handle(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    errno::kept(|| {
        // SAFETY: the kernel passes a whole structure, and `context` is this handler's third argument.
        unsafe {
            if !signal::signalled(info, context)
                && let Some(sample) = SAMPLE.get()
            {
                sample(&*info, context);
            }
        }
        // A signal of another sender is ignored, as without us.
    });
}
