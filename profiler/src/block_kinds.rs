//! The kinds of waits that enter the block profile.

use core::ops::{BitAnd, BitOr};

use rtprof_runtime::wait_reason::WaitReason;

/// A set of kinds of waits, for [`set_block_profile_kinds`](crate::contention::set_block_profile_kinds).
///
/// Of the network, system calls and sleeps, rtprof knows only waits that are announced to it (`trace::wait`), and with
/// the feature `interpose` the calls of the C library.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKinds(u8);

impl BlockKinds {
    /// No wait.
    pub const NONE: Self = Self(0);
    /// Waits for another thread: for locks, conditions, channels, barriers and `unpark`, and waits of this kind that
    /// the program announces.
    pub const SYNC: Self = Self(1);
    /// Waits for a thread to end.
    pub const JOIN: Self = Self(2);
    /// Waits for sockets, for events by `poll`, `select` and `epoll`, and waits of this kind that the program
    /// announces. Go has none of these in its block profile: no goroutine causes them. An idle server waits like this
    /// all the time.
    pub const NETWORK: Self = Self(4);
    /// System calls that took more than 20 microseconds: reading and writing files and pipes, waiting for processes,
    /// and transfers over sockets that do not wait.
    pub const SYSCALL: Self = Self(8);
    /// Sleeps.
    pub const SLEEP: Self = Self(16);
    /// Waits of async tasks (`rtprof::task`) until they are woken, for any reason: also waits for a socket or a time,
    /// and the short waits of `yield_now`. While the profile includes this kind, tasks note where they await at each
    /// await.
    pub const AWAIT: Self = Self(32);
    /// All waits.
    pub const ALL: Self = Self(63);
    /// The default of the block profile: as in Go, waits of threads that another thread of the program ends, and also
    /// waits of async tasks.
    pub const DEFAULT: Self = Self(Self::SYNC.0 | Self::JOIN.0 | Self::AWAIT.0);

    /// Returns whether all of `kinds` are in this set.
    #[inline]
    pub const fn contains(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// Returns the kind of a wait for this reason.
    pub fn of(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Sleep => Self::SLEEP,
            WaitReason::Net => Self::NETWORK,
            WaitReason::Join => Self::JOIN,
            WaitReason::Await => Self::AWAIT,
            WaitReason::MutexLock
            | WaitReason::RwLockRead
            | WaitReason::RwLockWrite
            | WaitReason::CondWait
            | WaitReason::Once
            | WaitReason::Barrier
            | WaitReason::Semaphore
            | WaitReason::ChanSend
            | WaitReason::ChanReceive
            | WaitReason::Park
            | WaitReason::Sync
            | WaitReason::Select => Self::SYNC,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

/// The default is [`BlockKinds::DEFAULT`].
impl Default for BlockKinds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The union of both sets.
impl BitOr for BlockKinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The intersection of both sets.
impl BitAnd for BlockKinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl core::fmt::Debug for BlockKinds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [
            (Self::SYNC, "SYNC"),
            (Self::JOIN, "JOIN"),
            (Self::NETWORK, "NETWORK"),
            (Self::SYSCALL, "SYSCALL"),
            (Self::SLEEP, "SLEEP"),
            (Self::AWAIT, "AWAIT"),
        ];
        let mut set = f.debug_set();
        for (kind, name) in names {
            if self.contains(kind) {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_go_has() {
        for reason in WaitReason::ALL {
            let is_blocking = BlockKinds::DEFAULT.contains(BlockKinds::of(reason));
            assert_eq!(is_blocking, !["sleep", "IO wait"].contains(&reason.name()));
        }
    }

    #[test]
    fn kinds_are_sets() {
        let both = BlockKinds::SYNC | BlockKinds::SLEEP;
        assert!(both.contains(BlockKinds::SLEEP) && both.contains(BlockKinds::NONE));
        assert!(!both.contains(BlockKinds::SLEEP | BlockKinds::NETWORK));
        assert_eq!(both & BlockKinds::DEFAULT, BlockKinds::SYNC);
        assert_eq!(BlockKinds::from_bits(u8::MAX), BlockKinds::ALL);
        assert_eq!(BlockKinds::from_bits(both.bits()), both);
        assert_eq!(format!("{both:?} {:?}", BlockKinds::NONE), "{SYNC, SLEEP} {}");
    }
}
