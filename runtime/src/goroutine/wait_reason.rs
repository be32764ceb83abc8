//! The reasons for which a goroutine waits.

/// The classes of reasons that readers of profiles and traces distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitClass {
    /// For another thread, by a lock or the like.
    Sync,
    /// For a condition.
    Condition,
    /// For room in a channel.
    Send,
    /// For a message.
    Receive,
    /// For one of several things.
    Select,
    /// For the network, or another device.
    Network,
    /// For a time.
    Sleep,
    /// For threads to end.
    Join,
    /// For what an async task awaits.
    Await,
}

/// Defines the reasons once: the type, its list, and of each reason the class, the name and the words in a trace.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $class:ident, $text:literal, $in_trace:literal;)*) => {
        /// Why a goroutine does not run. Go: `waitReason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum WaitReason {
            $($(#[$doc])* $name = $number,)*
        }

        impl WaitReason {
            /// All reasons, by their numbers from 1.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            /// Returns the name shown in profiles: Go's words where Go has the reason, since tools group by them.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the words for it in a trace. The profiles of `go tool trace` select waits by them: "network" alone is
            /// the network's, and all words with "sync", "chan" or "select" in them are synchronisation.
            pub fn in_trace(self) -> &'static str {
                match self { $(Self::$name => $in_trace,)* }
            }

            /// Returns its class.
            #[inline]
            pub fn class(self) -> WaitClass {
                match self { $(Self::$name => WaitClass::$class,)* }
            }
        }
    };
}

reasons! {
    /// For a mutex that another goroutine holds.
    MutexLock = 1, Sync, "sync.Mutex.Lock", "sync: mutex";
    /// For read access to a lock that a writer holds or waits for.
    RwLockRead = 2, Sync, "sync.RWMutex.RLock", "sync: rwlock, read";
    /// For write access to a lock that others hold.
    RwLockWrite = 3, Sync, "sync.RWMutex.Lock", "sync: rwlock, write";
    /// For a condition variable.
    CondWait = 4, Condition, "sync.Cond.Wait", "sync: condvar";
    /// For another thread to finish a one-time initialisation.
    Once = 5, Sync, "once", "sync: once";
    /// For the other participants of a barrier.
    Barrier = 6, Sync, "barrier", "sync: barrier";
    /// For a semaphore.
    Semaphore = 7, Sync, "semacquire", "sync: semaphore";
    /// For room in a channel.
    ChanSend = 8, Send, "chan send", "channel send";
    /// For a message from a channel.
    ChanReceive = 9, Receive, "chan receive", "channel receive";
    /// For threads to end.
    Join = 10, Join, "thread join", "sync: join";
    /// For `unpark`.
    Park = 11, Sync, "thread park", "sync: park";
    /// For a time to pass.
    Sleep = 12, Sleep, "sleep", "sleep";
    /// For another goroutine, by means of the program's own synchronisation.
    Sync = 13, Sync, "sync wait", "sync";
    /// For one of several things.
    Select = 14, Select, "select", "select";
    /// For the network, or another device.
    Net = 15, Network, "IO wait", "network";
    /// For what an async task awaits: its stack shows what.
    Await = 16, Await, "await", "sync: await";
}

impl WaitReason {
    /// Returns the reason with this number; `None` for 0, which means no wait.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_tell_reasons_apart() {
        let names: std::collections::HashSet<_> = WaitReason::ALL.map(WaitReason::name).into();
        assert_eq!(names.len(), WaitReason::ALL.len());
        let in_trace: std::collections::HashSet<_> = WaitReason::ALL.map(WaitReason::in_trace).into();
        assert_eq!(in_trace.len(), WaitReason::ALL.len());
        for reason in WaitReason::ALL {
            assert_eq!(WaitReason::from_number(reason as u8), Some(reason));
        }
        assert_eq!(WaitReason::from_number(0), None);
        assert_eq!(WaitReason::from_number(WaitReason::ALL.len() as u8 + 1), None);
    }
}
