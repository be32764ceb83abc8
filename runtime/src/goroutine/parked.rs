//! Where the stack of a goroutine that waits begins.
//!
//! Written by the goroutine itself, before it sleeps and when it runs again; read by those who take a snapshot, under
//! the rules of [`super::protocol`].

use crate::primitive::{AtomicUsize, Ordering};
use crate::stack::SavedFrame;

/// The frame from which the stack of a waiting goroutine can be read, if it waits.
#[derive(Default)]
pub(crate) struct Parked {
    /// 0 while it does not wait.
    ip: AtomicUsize,
    sp: AtomicUsize,
    fp: AtomicUsize,
    end: AtomicUsize,
    /// Of all four: a signal handler that waits may have interrupted the writing of them.
    check: AtomicUsize,
}

/// What a waiting goroutine has left for others to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParkedAt {
    pub(crate) frame: SavedFrame,
    /// The end of its stack, or 0 where that is not known.
    pub(crate) end: usize,
}

impl ParkedAt {
    fn check(self) -> usize {
        let SavedFrame { ip, sp, fp } = self.frame;
        ip ^ sp.rotate_left(16) ^ fp.rotate_left(32) ^ self.end.rotate_left(48)
    }
}

impl Parked {
    /// The goroutine waits from now on. By itself.
    #[inline]
    pub(crate) fn begin(&self, at: ParkedAt) {
        self.sp.store(at.frame.sp, Ordering::Relaxed);
        self.fp.store(at.frame.fp, Ordering::Relaxed);
        self.end.store(at.end, Ordering::Relaxed);
        self.check.store(at.check(), Ordering::Relaxed);
        self.ip.store(at.frame.ip, Ordering::Release);
    }

    /// The goroutine does not wait any more. By itself; a fence and a look at the snapshot that goes on follow.
    #[inline]
    pub(crate) fn end(&self) {
        self.ip.store(0, Ordering::Relaxed);
    }

    /// Whether it waits.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.ip.load(Ordering::Relaxed) != 0
    }

    /// Where it waits. `None` if it does not, or if that is half written.
    #[inline]
    pub(crate) fn read(&self) -> Option<ParkedAt> {
        let ip = self.ip.load(Ordering::Acquire);
        if ip == 0 {
            return None;
        }
        let (sp, fp) = (self.sp.load(Ordering::Relaxed), self.fp.load(Ordering::Relaxed));
        let at = ParkedAt { frame: SavedFrame { ip, sp, fp }, end: self.end.load(Ordering::Relaxed) };
        (self.check.load(Ordering::Relaxed) == at.check()).then_some(at)
    }
}
