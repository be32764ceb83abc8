//! The kinds of waits that enter the block profile.

use bitflags::bitflags;
use rtprof_runtime::goroutine::wait_reason::{WaitClass, WaitReason};

bitflags! {
    /// A set of kinds of waits, for [`set_block_profile_kinds`](crate::contention::set_block_profile_kinds).
    ///
    /// Of waits for the network, system calls and sleeps, rtprof knows only those that the program announces
    /// (`trace::wait`), and with the feature `interpose` those in calls of the C library.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct BlockKinds: u8 {
        /// Waits for another thread: for locks, conditions, channels, barriers and `unpark`, and waits of this kind
        /// that the program announces.
        const SYNC = 1;
        /// Waits for a thread to end.
        const JOIN = 2;
        /// Waits for sockets, for events by `poll`, `select` and `epoll`, and waits of this kind that the program
        /// announces. Go has none of these in its block profile: no goroutine causes them. An idle server waits like
        /// this all the time.
        const NETWORK = 4;
        /// System calls that took more than 20 microseconds: reading and writing files and pipes, waiting for
        /// processes, and transfers over sockets that do not wait.
        const SYSCALL = 8;
        /// Sleeps.
        const SLEEP = 16;
        /// Waits of async tasks (`rtprof::task`) until they are woken, for any reason: also waits for a socket or a
        /// time, and the short waits of `yield_now`. While the profile includes this kind, tasks note where they await
        /// at each await.
        const AWAIT = 32;
    }
}

impl BlockKinds {
    /// No wait.
    pub const NONE: Self = Self::empty();
    /// All waits.
    pub const ALL: Self = Self::all();
    /// The default of the block profile: as in Go, waits of threads that another thread of the program ends, and also
    /// waits of async tasks.
    pub const DEFAULT: Self = Self::SYNC.union(Self::JOIN).union(Self::AWAIT);

    /// Returns the kind of this name, as it stands in a request: `sync`, `join`, `network`, `syscall`, `sleep` or `await`.
    pub fn named(name: &str) -> Option<Self> {
        let flag = Self::from_name(&name.to_ascii_uppercase())?;
        // Not by the names in capitals of the constants.
        name.bytes().all(|byte| byte.is_ascii_lowercase()).then_some(flag)
    }

    /// Returns the kind of a wait for this reason.
    pub fn of(reason: WaitReason) -> Self {
        match reason.class() {
            WaitClass::Sleep => Self::SLEEP,
            WaitClass::Network => Self::NETWORK,
            WaitClass::Join => Self::JOIN,
            WaitClass::Await => Self::AWAIT,
            WaitClass::Sync
            | WaitClass::Condition
            | WaitClass::Send
            | WaitClass::Receive
            | WaitClass::Select => Self::SYNC,
        }
    }
}

/// The default is [`BlockKinds::DEFAULT`].
impl Default for BlockKinds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_go_has() {
        for reason in WaitReason::ALL {
            let is_blocking = BlockKinds::DEFAULT.contains(BlockKinds::of(reason));
            assert_eq!(
                is_blocking,
                !matches!(reason.class(), WaitClass::Sleep | WaitClass::Network),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn kinds_are_sets() {
        let both = BlockKinds::SYNC | BlockKinds::SLEEP;
        assert!(both.contains(BlockKinds::SLEEP) && both.contains(BlockKinds::NONE));
        assert!(!both.contains(BlockKinds::SLEEP | BlockKinds::NETWORK));
        assert_eq!(both & BlockKinds::DEFAULT, BlockKinds::SYNC);
        assert_eq!(BlockKinds::from_bits_truncate(u8::MAX), BlockKinds::ALL);
        assert_eq!(format!("{both:?} {:?}", BlockKinds::NONE), "BlockKinds(SYNC | SLEEP) BlockKinds(0x0)");
    }
}
