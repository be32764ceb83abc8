//! The reasons for which a goroutine waits.

/// Defines the reasons once: the type, its list and its names, so that none can be forgotten.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
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
        }
    };
}

reasons! {
    /// For a mutex that another goroutine holds.
    MutexLock = 1, "sync.Mutex.Lock";
    /// For read access to a lock that a writer holds or waits for.
    RwLockRead = 2, "sync.RWMutex.RLock";
    /// For write access to a lock that others hold.
    RwLockWrite = 3, "sync.RWMutex.Lock";
    /// For a condition variable.
    CondWait = 4, "sync.Cond.Wait";
    /// For another thread to finish a one-time initialisation.
    Once = 5, "once";
    /// For the other participants of a barrier.
    Barrier = 6, "barrier";
    /// For a semaphore.
    Semaphore = 7, "semacquire";
    /// For room in a channel.
    ChanSend = 8, "chan send";
    /// For a message from a channel.
    ChanReceive = 9, "chan receive";
    /// For threads to end.
    Join = 10, "thread join";
    /// For `unpark`.
    Park = 11, "thread park";
    /// For a time to pass.
    Sleep = 12, "sleep";
    /// For another goroutine, by means of the program's own synchronisation.
    Sync = 13, "sync wait";
    /// For one of several things.
    Select = 14, "select";
    /// For the network, or another device.
    Net = 15, "IO wait";
    /// For what an async task awaits: its stack shows what.
    Await = 16, "await";
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
        for reason in WaitReason::ALL {
            assert_eq!(WaitReason::from_number(reason as u8), Some(reason));
        }
        assert_eq!(WaitReason::from_number(0), None);
        assert_eq!(WaitReason::from_number(WaitReason::ALL.len() as u8 + 1), None);
    }
}
