//! Decides which wakes are unlocks.
//!
//! The mutex profile shows the code that kept others waiting for a lock. Where waits are seen at the kernel's futex
//! (`hooks::interpose`), a wake may also be a notified condition, a message, or an unparked thread: these have waiters
//! too, but no thread held anything that it could have released earlier. The frames next to the hook show the kind of
//! wake, once they have names, or else the frames of the woken thread do.

use crate::names::short;
use crate::path::in_crate;
use crate::prune::Class;
use crate::symbol_cache::Symbols;

/// How many functions are examined: from the system call to the lock's own function.
const NEAR: usize = 8;

/// The kind of wake that a function makes, directly or not, as its name shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waker {
    Lock,
    Other,
    Unknown,
}

/// Words in the paths of locks, of std, parking_lot, lock_api and similar crates. In lower case.
const LOCKS: [&str; 5] = ["mutex", "rwlock", "rw_lock", "reentrantlock", "reentrant_lock"];

/// Crates whose function names are trusted when they show another kind of wake. A program's own functions may have any
/// names, and are all that is left in the stack where a guard was dropped by a jump.
const CRATES: [&str; 13] = [
    "async_channel",
    "crossbeam_channel",
    "crossbeam_utils",
    "event_listener",
    "flume",
    "futures_channel",
    "futures_executor",
    "kanal",
    "once_cell",
    "parking",
    "parking_lot",
    "std",
    "tokio",
];

/// Words in the paths of those functions. In lower case.
const OTHERS: [&str; 12] = [
    "condvar",
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
        // The crate's name says nothing about its functions: parking_lot has conditions, and unparks threads that wait
        // for locks.
        let is_in = |words: &[&str]| {
            // A closure is called by `FnOnce::call_once`.
            let mut segments = path.split("::").skip(1).filter(|segment| *segment != "call_once");
            segments.any(|segment| words.iter().any(|word| segment.contains(word)))
        };
        let is_believed = || CRATES.iter().any(|krate| in_crate(&path, krate));
        // `parking_lot_core::parking_lot::unpark_one` runs beneath both a lock and a condition.
        if path.starts_with("parking_lot_core::") {
            Self::Unknown
        } else if is_in(&LOCKS) || path.starts_with("pthread_mutex") || path.starts_with("pthread_rwlock") {
            Self::Lock
        } else if is_believed() && is_in(&OTHERS) || path.starts_with("pthread_cond") {
            Self::Other
        } else {
            Self::Unknown
        }
    }
}

/// Returns the type that a function drops, if it does nothing else: often the only trace of a guard whose own function
/// has jumped to the system call. Empty if the name does not show the type, as for an inlined function.
fn dropped(name: &str) -> Option<&str> {
    let rest =
        name.strip_prefix("core::ptr::drop_in_place").or_else(|| name.strip_prefix("core::mem::drop"))?;
    match rest.trim_start_matches("::") {
        "" => Some(""),
        kind => kind.strip_prefix('<')?.strip_suffix('>'),
    }
}

/// Whether a wake with this stack, leaf first, was an unlock, or a wait with this stack was for a lock. The innermost
/// function with a telling name decides. `None` if no such function is near the hook, or if a function further in has
/// no name, has no line (so that functions inlined into it are unknown), or has dropped an unknown type.
///
/// A function that ends by dropping a guard jumps to the lock's function, which jumps to the system call: neither is in
/// the stack of the wake. Then the stack of the woken thread decides, because that thread is still in the functions in
/// which it waits.
pub(crate) fn tell_unlock<'a>(addresses: impl Iterator<Item = &'a Symbols>) -> Option<bool> {
    let lines = addresses.flat_map(|symbols| {
        let nameless = symbols.lines.is_empty().then_some(None);
        let named = symbols.lines.iter().zip(&symbols.classes).map(Some);
        nameless.into_iter().chain(named)
    });
    // First the recording, then the interposed function. The functions of parking_lot, which count as hooks beneath our
    // own locks, come after that: here they show what was unlocked.
    let is_recording = |class: Class| matches!(class, Class::Layer | Class::Hook);
    let is_call =
        |class: Class| matches!(class, Class::Interposed | Class::Call | Class::Kernel | Class::SystemCall);
    let near = lines
        .skip_while(|line| line.is_some_and(|(_, class)| is_recording(*class)))
        .skip_while(|line| line.is_some_and(|(_, class)| is_call(*class)))
        .take(NEAR);
    for line in near {
        let (line, _) = line?;
        match Waker::of(&line.function.name) {
            Waker::Lock => return Some(true),
            Waker::Other => return Some(false),
            Waker::Unknown if line.line == 0 || dropped(&line.function.name) == Some("") => return None,
            Waker::Unknown => {}
        }
    }
    None
}

/// Whether waits of different functions have different sites, as this site shows: the function from which the kernel was
/// called is that of one lock or condition, and not one in which all of them wait, as in a program without optimisation. Where
/// sites are not told apart, the site of one wait says nothing about other waits of the record.
pub(crate) fn is_told_apart<'a>(mut addresses: impl Iterator<Item = &'a Symbols>) -> bool {
    let calls = addresses.find(|symbols| symbols.classes.contains(&Class::SystemCall));
    calls.is_none_or(|symbols| symbols.classes.last() != Some(&Class::SystemCall))
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
            "crossbeam_channel::waker::SyncWaker::notify",
            "<tokio::sync::notify::Notify>::notify_waiters",
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
            "app::channel::Inbox::notify_all",
            "<app::main::{closure#0} as core::ops::function::FnOnce<()>>::call_once",
            "<std::panic::AssertUnwindSafe<app::main::{closure#0}> as core::ops::function::FnOnce<()>>::call_once",
        ] {
            assert_eq!(Waker::of(name), Waker::Unknown, "{name}");
        }
    }
}
