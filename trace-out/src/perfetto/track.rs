//! The tracks of a trace, and their numbers.

/// The number of a track of the trace, its `uuid`. Small numbers take few bytes.
///
/// ```text
///   4 n      the goroutine n: a thread or a task
///   4 n + 1  its regions
///   4 n + 2  the user task n
///   4 n + 3  the track n of the process
/// ```
pub(super) fn goroutine(id: u64) -> u64 {
    id << 2
}

pub(super) fn regions(id: u64) -> u64 {
    id << 2 | 1
}

/// Returns the goroutine of a track, and whether the track is that of its regions.
pub(super) fn of_goroutine(track: u64) -> Option<(u64, bool)> {
    match track & 3 {
        0 => Some((track >> 2, false)),
        1 => Some((track >> 2, true)),
        _ => None,
    }
}

pub(super) fn user_task(id: u64) -> u64 {
    id << 2 | 2
}

const fn of_process(number: u64) -> u64 {
    number << 2 | 3
}

pub(super) const PROCESS: u64 = of_process(0);
/// Events that belong to no thread.
pub(super) const OUTSIDE: u64 = of_process(1);
pub(super) const COLLECTIONS: u64 = of_process(2);
pub(super) const STOPS: u64 = of_process(3);
pub(super) const HEAP: u64 = of_process(4);
pub(super) const GOAL: u64 = of_process(5);
pub(super) const TASKS: u64 = of_process(6);
pub(super) const USER_TASKS: u64 = of_process(7);
pub(super) const THREADS: u64 = of_process(8);
pub(super) const RUNNABLE: u64 = of_process(9);
pub(super) const WAITING: u64 = of_process(10);

/// Returns the track of a group of tasks, by its number.
pub(super) fn group(number: u64) -> u64 {
    of_process(16 + number)
}
