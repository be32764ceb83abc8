//! The frame at which the stack of a waiting goroutine begins.
//!
//! The goroutine itself writes it before it sleeps and clears it when it runs again; snapshots read it under the rules
//! of [`super::protocol`].

use core::sync::atomic::compiler_fence;

use crate::primitive::{AtomicUsize, Ordering};
use crate::stack::SavedFrame;

/// The frame from which the stack of a waiting goroutine can be read.
#[derive(Default)]
pub(crate) struct Parked {
    /// 0 while the goroutine does not wait.
    ip: AtomicUsize,
    sp: AtomicUsize,
    fp: AtomicUsize,
    end: AtomicUsize,
    /// Checksum of the four words: a signal handler that waits may have interrupted the writing of them.
    check: AtomicUsize,
}

/// The saved frame of a waiting goroutine, as a snapshot reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParkedAt {
    pub(crate) frame: SavedFrame,
    /// The end of the goroutine's stack, or 0 where that is not known.
    pub(crate) end: usize,
}

/// Two words of a wait that is over: the others are read only if a snapshot needs them.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    ip: usize,
    sp: usize,
}

impl ParkedAt {
    fn check(self) -> usize {
        let SavedFrame { ip, sp, fp } = self.frame;
        ip ^ sp.rotate_left(16) ^ fp.rotate_left(32) ^ self.end.rotate_left(48)
    }
}

impl Parked {
    /// Notes that the goroutine waits from now on. Called by the goroutine itself.
    #[inline]
    pub(crate) fn begin(&self, at: ParkedAt) {
        self.sp.store(at.frame.sp, Ordering::Relaxed);
        self.fp.store(at.frame.fp, Ordering::Relaxed);
        self.end.store(at.end, Ordering::Relaxed);
        self.check.store(at.check(), Ordering::Relaxed);
        self.ip.store(at.frame.ip, Ordering::Release);
    }

    /// Notes that the goroutine waits no more. Called by the goroutine itself, which then executes a fence and checks
    /// for a current snapshot. Returns what [`Parked::ended`] needs.
    #[inline]
    pub(crate) fn end(&self) -> Ended {
        let sp = self.sp.load(Ordering::Relaxed);
        // In this order: a signal handler that waits between the two loads leaves `ip` 0, and so no wait. In the other order
        // its stack pointer would be read with the earlier instruction, and pass for a frame of this wait.
        compiler_fence(Ordering::SeqCst);
        let ip = self.ip.load(Ordering::Relaxed);
        self.ip.store(0, Ordering::Relaxed);
        Ended { ip, sp }
    }

    /// Returns where the goroutine has waited until [`Parked::end`]. `None` as for [`Parked::read`], and if a signal
    /// handler has waited since and has overwritten the words. Called by the goroutine itself.
    pub(crate) fn ended(&self, Ended { ip, sp }: Ended) -> Option<ParkedAt> {
        // The handler's wait in the same function has the same instruction, but not the same stack pointer.
        if ip == 0 { None } else { self.read_others(ip).filter(|at| at.frame.sp == sp) }
    }

    /// Returns whether the goroutine waits.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.ip.load(Ordering::Relaxed) != 0
    }

    /// Returns where the goroutine waits, or `None` if it does not wait or the words are half written.
    #[inline]
    pub(crate) fn read(&self) -> Option<ParkedAt> {
        match self.ip.load(Ordering::Acquire) {
            0 => None,
            ip => self.read_others(ip),
        }
    }

    #[inline]
    fn read_others(&self, ip: usize) -> Option<ParkedAt> {
        let (sp, fp) = (self.sp.load(Ordering::Relaxed), self.fp.load(Ordering::Relaxed));
        let at = ParkedAt { frame: SavedFrame { ip, sp, fp }, end: self.end.load(Ordering::Relaxed) };
        (self.check.load(Ordering::Relaxed) == at.check()).then_some(at)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_over_is_not_taken_for_that_of_a_signal_handler() {
        let at = |sp| ParkedAt { frame: SavedFrame { ip: 1, sp, fp: 3 }, end: 4 };
        let parked = Parked::default();
        assert_eq!(parked.ended(parked.end()), None, "there was none");
        parked.begin(at(200));
        let outer = parked.end();
        assert_eq!(parked.ended(outer), Some(at(200)));
        // The handler waits in the same function.
        parked.begin(at(100));
        let inner = parked.end();
        assert_eq!((parked.ended(inner), parked.ended(outer)), (Some(at(100)), None));
    }
}
