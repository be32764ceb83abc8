//! Which wakes are unlocks.
//!
//! The mutex profile has what others waited for a lock. Where waits are seen at the kernel's futex (`hooks::interpose`) a wake
//! may as well have been a condition that was notified, a message, a thread that was unparked: those have waiters too, but
//! nobody held anything that he could have given up earlier. What it was stands in the frames next to the hook, once they have
//! names.

use crate::names::short;
use crate::prune::Class;
use crate::symbol_cache::Symbols;

/// How many functions are looked at: from the system call to the lock's own.
const NEAR: usize = 8;

/// What a function says of a wake that it has made, directly or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waker {
    Lock,
    Other,
    Unknown,
}

/// What stands in paths of locks, of std, parking_lot, lock_api and their like. In lower case.
const LOCKS: [&str; 5] = ["mutex", "rwlock", "rw_lock", "reentrantlock", "reentrant_lock"];

/// What stands in paths of what else wakes.
const OTHERS: [&str; 13] = [
    "condvar",
    "pthread_cond",
    "thread_parking",
    "park",
    "once",
    "barrier",
    "semaphore",
    "mpsc",
    "mpmc",
    "channel",
    "notify",
    "waitgroup",
    "wait_group",
];

impl Waker {
    fn of(name: &str) -> Self {
        let path = short(dropped(name).unwrap_or(name)).to_lowercase();
        // The crate's name says nothing of its functions: parking_lot has conditions, and unparks what waits for locks.
        let is_in = |words: &[&str]| {
            path.split("::").skip(1).any(|segment| words.iter().any(|word| segment.contains(word)))
        };
        // `parking_lot_core::parking_lot::unpark_one` runs beneath a lock and beneath a condition.
        if path.starts_with("parking_lot_core::") {
            Self::Unknown
        } else if is_in(&LOCKS) || path.starts_with("pthread_mutex") || path.starts_with("pthread_rwlock") {
            Self::Lock
        } else if is_in(&OTHERS) || path.starts_with("pthread_cond") {
            Self::Other
        } else {
            Self::Unknown
        }
    }
}

/// What a function drops, if that is all that it does: often the only trace of a guard, whose own function has jumped to the
/// system call. Empty if the name does not tell, as that of an inlined function.
fn dropped(name: &str) -> Option<&str> {
    let rest =
        name.strip_prefix("core::ptr::drop_in_place").or_else(|| name.strip_prefix("core::mem::drop"))?;
    match rest.trim_start_matches("::") {
        "" => Some(""),
        kind => kind.strip_prefix('<')?.strip_suffix('>'),
    }
}

/// Whether a wake with this stack, leaf first, was that of a lock. It may have been if a function near the hook has no name, or
/// no line, so that what was inlined into it is not known, or if it has dropped something that is not known.
pub(crate) fn may_be_unlock<'a>(addresses: impl Iterator<Item = &'a Symbols>) -> bool {
    let lines = addresses.flat_map(|symbols| {
        let nameless = symbols.lines.is_empty().then_some(None);
        let named = symbols.lines.iter().zip(&symbols.classes).map(Some);
        nameless.into_iter().chain(named)
    });
    // First the recording, then the interposed function. Parking_lot's functions, which are hooks beneath our own locks, come after
    // that: here they say what was unlocked.
    let is_recording = |class: Class| matches!(class, Class::Layer | Class::Hook);
    let is_call = |class: Class| matches!(class, Class::Interposed | Class::SystemCall);
    let near = lines
        .skip_while(|line| line.is_some_and(|(_, class)| is_recording(*class)))
        .skip_while(|line| line.is_some_and(|(_, class)| is_call(*class)))
        .take(NEAR);
    for line in near {
        let Some((line, _)) = line else { return true };
        match Waker::of(&line.function.name) {
            Waker::Lock => return true,
            Waker::Other => return false,
            Waker::Unknown if line.line == 0 || dropped(&line.function.name) == Some("") => return true,
            Waker::Unknown => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_told_from_others() {
        for name in [
            "<std::sys::sync::mutex::futex::Mutex>::wake",
            "std::sys::sync::rwlock::futex::RwLock::wake_writer_or_readers",
            "<std::sync::poison::mutex::MutexGuard<app::Condvar> as core::ops::drop::Drop>::drop",
            "<parking_lot::raw_mutex::RawMutex>::unlock_slow",
            "parking_lot::raw_rwlock::RawRwLock::unlock_exclusive_slow",
            "lock_api::mutex::Mutex<R,T>::unlock",
            "pthread_mutex_unlock",
            "core::ptr::drop_in_place<std::sync::poison::mutex::MutexGuard<()>>",
            "core::mem::drop::<std::sync::poison::rwlock::RwLockWriteGuard<app::T>>",
        ] {
            assert_eq!(Waker::of(name), Waker::Lock, "{name}");
        }
        for name in [
            "<std::sys::sync::condvar::futex::Condvar>::notify_one",
            "<std::sys::sync::thread_parking::futex::Parker>::unpark",
            "std::thread::Thread::unpark",
            "<std::sys::sync::once::futex::CompletionGuard as core::ops::drop::Drop>::drop",
            "parking_lot::condvar::Condvar::notify_all_slow",
            "<std::sync::mpmc::waker::Waker>::notify",
            "pthread_cond_signal",
        ] {
            assert_eq!(Waker::of(name), Waker::Other, "{name}");
        }
        for name in [
            "parking_lot_core::parking_lot::unpark_one",
            "<parking_lot_core::thread_parker::imp::UnparkHandle as parking_lot_core::thread_parker::UnparkHandleT>::unpark",
            "std::sys::pal::unix::futex::futex_wake",
            "core::ptr::drop_in_place<app::Session<std::sync::poison::mutex::Mutex<()>>>",
            "app::main",
        ] {
            assert_eq!(Waker::of(name), Waker::Unknown, "{name}");
        }
    }
}
