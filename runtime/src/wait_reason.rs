//! The reasons for which a goroutine waits.

/// Why a goroutine does not run. Go: `waitReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WaitReason {
    /// For a mutex that another goroutine holds.
    MutexLock = 1,
    /// For read access to a lock that a writer holds or waits for.
    RwLockRead,
    /// For write access to a lock that others hold.
    RwLockWrite,
    /// For a condition variable.
    CondWait,
    /// For another thread to finish a one-time initialisation.
    Once,
    /// For the other participants of a barrier.
    Barrier,
    /// For a semaphore.
    Semaphore,
    /// For room in a channel.
    ChanSend,
    /// For a message from a channel.
    ChanReceive,
    /// For threads to end.
    Join,
    /// For `unpark`.
    Park,
    /// For a time to pass.
    Sleep,
    /// For another goroutine, by means of the program's own synchronisation.
    Sync,
    /// For one of several things.
    Select,
    /// For the network, or another device.
    Net,
    /// For what an async task awaits: its stack shows what.
    Await,
}

impl WaitReason {
    /// All reasons, by their numbers from 1.
    pub const ALL: [Self; 16] = [
        Self::MutexLock,
        Self::RwLockRead,
        Self::RwLockWrite,
        Self::CondWait,
        Self::Once,
        Self::Barrier,
        Self::Semaphore,
        Self::ChanSend,
        Self::ChanReceive,
        Self::Join,
        Self::Park,
        Self::Sleep,
        Self::Sync,
        Self::Select,
        Self::Net,
        Self::Await,
    ];

    /// Returns the name shown in profiles: Go's words where Go has the reason, since tools group by them.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutexLock => "sync.Mutex.Lock",
            Self::RwLockRead => "sync.RWMutex.RLock",
            Self::RwLockWrite => "sync.RWMutex.Lock",
            Self::CondWait => "sync.Cond.Wait",
            Self::Once => "once",
            Self::Barrier => "barrier",
            Self::Semaphore => "semacquire",
            Self::ChanSend => "chan send",
            Self::ChanReceive => "chan receive",
            Self::Join => "thread join",
            Self::Park => "thread park",
            Self::Sleep => "sleep",
            Self::Sync => "sync wait",
            Self::Select => "select",
            Self::Net => "IO wait",
            Self::Await => "await",
        }
    }

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
