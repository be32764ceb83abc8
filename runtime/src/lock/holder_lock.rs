//! A lock whose word is the number of its holder, so that it can be taken from a holder that no longer exists: a thread
//! that has died, or the parent process in a forked child.
//!
//! It guards nothing by itself, and does not decide how to wait: its owner says what it protects, and when to give up.

use core::sync::atomic::AtomicU32;

use crate::primitive::Ordering;

/// The lock. Its word is 0 while it is open. `Word` is loom's atomic where models share the lock between threads, and
/// core's in statics that models do not explore.
#[derive(Default)]
pub struct HolderLock<Word = AtomicU32>(Word);

impl<Word> HolderLock<Word> {
    /// Makes a lock with this word, which is 0.
    pub const fn new(word: Word) -> Self {
        Self(word)
    }
}

macro_rules! operations {
    ($word:ty) => {
        impl HolderLock<$word> {
            /// Returns the number of the holder; 0 while the lock is open.
            #[inline]
            pub fn holder(&self) -> u32 {
                self.0.load(Ordering::Relaxed)
            }

            /// Takes the lock for `me`, which is not 0. Fails with the number of the holder.
            #[inline]
            pub fn try_take(&self, me: u32) -> Result<(), u32> {
                self.try_take_from(0, me)
            }

            /// Takes the lock for `me` from `gone`, which will not release it. Fails with the number of the holder if
            /// `gone` does not hold it.
            #[inline]
            pub(crate) fn try_take_from(&self, gone: u32, me: u32) -> Result<(), u32> {
                self.0.compare_exchange(gone, me, Ordering::Acquire, Ordering::Relaxed).map(drop)
            }

            /// Takes the lock for `me` as soon as it is open. After each failed try, `gives_up` receives the number of
            /// tries and the holder; if it returns true, this returns false.
            #[inline]
            pub fn take(&self, me: u32, mut gives_up: impl FnMut(u32, u32) -> bool) -> bool {
                let mut tries = 0;
                while let Err(holder) = self.try_take(me) {
                    tries += 1;
                    if gives_up(tries, holder) {
                        return false;
                    }
                }
                true
            }

            /// Opens the lock. Called by the holder.
            #[inline]
            pub fn release(&self) {
                self.0.store(0, Ordering::Release);
            }

            /// Opens the lock if `dead`, a thread that has ended, holds it.
            pub fn release_for(&self, dead: u32) {
                let _ = self.0.compare_exchange(dead, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    };
}

operations!(AtomicU32);
#[cfg(loom)]
operations!(crate::primitive::AtomicU32);
