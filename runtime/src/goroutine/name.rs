//! A goroutine's name: 64 bytes in its slot, written by the goroutine itself, read by any thread.
//!
//! No lock, and no pointer to a string that would have to be freed: a version beside the bytes is odd while they are
//! written, and a reader whose version has changed afterwards reads again. A reader gives up after a number of tries,
//! because in a forked child a version may stay odd for ever.

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// The maximum number of bytes of a name.
pub const MAX_NAME: usize = 64;

const WORD: usize = size_of::<u64>();

#[cfg(not(loom))]
const TRIES: usize = 64;
#[cfg(loom)]
const TRIES: usize = 2;

#[derive(Default)]
pub(crate) struct Name {
    version: AtomicU32,
    len: AtomicU32,
    words: [AtomicU64; MAX_NAME / WORD],
}

impl Name {
    /// Replaces the name; a longer name is cut at a character boundary. One writer at a time.
    pub(crate) fn set(&self, name: &str) {
        let mut len = name.len().min(MAX_NAME);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let version = self.version.load(Ordering::Relaxed);
        // Release, here and below: a reader that reads one of these values and then the version sees that the version
        // is odd, or a later one. A reader that gives up sees the slot's new id if the slot has another goroutine.
        self.version.store(version.wrapping_add(1), Ordering::Release);
        self.len.store(len as u32, Ordering::Release);
        for (word, bytes) in self.words.iter().zip(name.as_bytes()[..len].chunks(WORD)) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Ordering::Release);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Runs `f` with the name, or with an empty one if the name was being written at every try.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        let mut bytes = [0; MAX_NAME];
        for _ in 0..TRIES {
            let version = self.version.load(Ordering::Acquire);
            let len = (self.len.load(Ordering::Acquire) as usize).min(MAX_NAME);
            for (word, place) in self.words.iter().zip(bytes[..len].chunks_mut(WORD)) {
                let word = word.load(Ordering::Acquire).to_ne_bytes();
                place.copy_from_slice(&word[..place.len()]);
            }
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                // Names are cut at character boundaries.
                return f(core::str::from_utf8(&bytes[..len]).unwrap_or_default());
            }
            core::hint::spin_loop();
        }
        f("")
    }
}

#[cfg(test)]
impl Name {
    fn read(&self) -> String {
        self.with(str::to_owned)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn names_of_any_length_are_kept_or_cut_at_a_character() {
        let name = Name::default();
        assert_eq!(name.read(), "");
        for kept in ["worker", "", "12345678", "öäü", &"n".repeat(MAX_NAME)] {
            name.set(kept);
            assert_eq!(name.read(), kept);
        }
        name.set(&format!("a{}", "ö".repeat(100)));
        assert_eq!(name.read(), format!("a{}", "ö".repeat(31)), "the 32nd would end at byte 65");
        name.set(&"🦀".repeat(17));
        assert_eq!(name.read(), "🦀".repeat(16));
    }

    #[test]
    fn a_reader_never_sees_two_names_mixed() {
        let name = Name::default();
        let ends = AtomicBool::new(false);
        let names = ["a".repeat(60), "b".repeat(33), "c".repeat(7)];
        name.set(&names[0]);
        let whole = std::thread::scope(|s| {
            s.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    names.iter().for_each(|n| name.set(n));
                }
            });
            let whole = (0..if cfg!(miri) { 100 } else { 100_000 })
                .map(|_| name.read())
                .inspect(|read| assert!(read.is_empty() || names.contains(read), "{read} was no name"))
                .filter(|read| !read.is_empty())
                .count();
            ends.store(true, Ordering::Relaxed);
            whole
        });
        assert!(whole > 0);
    }

    #[test]
    fn a_name_left_half_written_is_empty_and_no_hang() {
        let name = Name::default();
        name.set("whole");
        name.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(name.read(), "");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn loom_a_name_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let name = Arc::new(Name::default());
            name.set("aaaaaaaaaaaa");
            // The reader is the spawned thread, as in the model of waits.
            let reader = {
                let name = name.clone();
                loom::thread::spawn(move || {
                    let read = name.read();
                    assert!(
                        ["", "aaaaaaaaaaaa", "bbbbbbbbbb", "cccc"].contains(&&*read),
                        "{read} was no name"
                    );
                })
            };
            name.set("bbbbbbbbbb");
            name.set("cccc");
            reader.join().unwrap();
            assert_eq!(name.read(), "cccc");
        });
    }
}
