//! The names of tasks in which samples were taken, each stored once: a task may have ended when its name is needed.

use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::goroutine::name::MAX_NAME;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::stack::kept::Frames;
use rtprof_runtime::stack::table::Table;

/// The number of distinct names that are stored. Samples in tasks with other names have none.
const MAX_NAMES: usize = 1024;

/// Samples beyond this number.
static OVER_LIMIT: Counter = Counter::new(&[CountedProfile::Cpu], || {
    format!("CPU samples are without the label task: a profile keeps {MAX_NAMES} distinct names of tasks")
});

const WORD: usize = size_of::<usize>();

/// A stored name, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TaskName(usize);

impl TaskName {
    pub(super) const NONE: Self = Self(0);

    /// Returns a number that identifies the name; 0 for none.
    pub(super) fn number(self) -> usize {
        self.0
    }
}

/// The table of names.
pub(super) struct TaskNames(Table<Frames, ()>);

impl TaskNames {
    /// Makes an empty table. Returns `None` if the kernel grants no memory.
    pub(super) fn new() -> Option<Self> {
        let table = Table::new(MAX_NAMES);
        table.open().then(|| Self(table))
    }

    /// Returns the name of the task that the current thread polls. Safe to call in a signal handler.
    pub(super) fn of_polled(&self) -> TaskName {
        let task = goroutine::known().and_then(Goroutine::polls);
        task.map_or(TaskName::NONE, |task| task.with_name(|name| self.keep(name)))
    }

    fn keep(&self, name: &str) -> TaskName {
        if name.is_empty() {
            return TaskName::NONE;
        }
        let mut words = [0; MAX_NAME / WORD];
        for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(WORD)) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = usize::from_ne_bytes(padded);
        }
        let words = &words[..name.len().div_ceil(WORD)];
        match self.0.intern(Frames, words) {
            Ok(entry) => TaskName((&raw const *entry).addr()),
            Err(_) => {
                OVER_LIMIT.add();
                TaskName::NONE
            }
        }
    }

    /// Returns all stored names.
    pub(super) fn all(&self) -> impl Iterator<Item = (TaskName, String)> {
        self.0.iter().map(|entry| {
            let mut bytes: Vec<u8> = entry.stack().iter().flat_map(|word| word.to_ne_bytes()).collect();
            // A name that ends with a zero byte loses that byte.
            bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
            (TaskName((&raw const *entry).addr()), String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}

impl Drop for TaskNames {
    fn drop(&mut self) {
        // SAFETY: `self` is borrowed mutably, so no other thread uses the table, and no entry is borrowed from it.
        unsafe { self.0.clear() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_kept_once() {
        let names = TaskNames::new().expect("there is memory");
        let long = "\u{fc}".repeat(MAX_NAME / 2);
        let given = ["a", "12345678", "123456789", long.as_str()];
        let kept = given.map(|name| names.keep(name));
        assert_eq!(given.map(|name| names.keep(name)), kept);
        for (name, kept) in given.iter().zip(kept) {
            assert!(names.all().any(|all| all == (kept, (*name).to_owned())), "{name}");
        }
        assert_eq!((names.all().count(), names.keep("")), (given.len(), TaskName::NONE));
        let all = (0..2 * MAX_NAMES).filter(|n| names.keep(&n.to_string()) != TaskName::NONE).count();
        assert_eq!(all, MAX_NAMES - given.len(), "what is too much has no name");
    }
}
