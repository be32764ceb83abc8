//! The kernel's name of a thread, noted by the thread's handler, because the thread may have ended when the name is
//! needed.

use core::sync::atomic::{AtomicU64, Ordering};

/// The bytes of the name; the first word is 0 before it is noted.
#[derive(Default)]
pub(super) struct NotedName([AtomicU64; 2]);

impl NotedName {
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Notes the name of the current thread, once. Called in its handler.
    pub(super) fn note(&self) {
        if self.0[0].load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut name = [0_u64; 2];
        // SAFETY: the call writes at most 16 bytes to a local of that size.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        self.0[1].store(name[1], Ordering::Relaxed);
        // Last: while the first word is 0, no name is noted.
        self.0[0].store(name[0], Ordering::Release);
    }

    /// Returns the name; empty if none was noted.
    pub(super) fn get(&self) -> String {
        let mut bytes = [0; 16];
        for (word, bytes) in self.0.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_noted_once() {
        let named = |name: &str, f: fn(&NotedName)| {
            let noted = NotedName([const { AtomicU64::new(0) }; 2]);
            let thread = std::thread::Builder::new().name(name.into());
            std::thread::scope(|scope| thread.spawn_scoped(scope, || f(&noted)).unwrap().join().unwrap());
            noted.get()
        };
        assert_eq!(named("fifteen-letters", NotedName::note), "fifteen-letters");
        assert_eq!(named("short", NotedName::note), "short");
        assert_eq!(named("none", |_| ()), "");
        let note_and_clear = |noted: &NotedName| {
            noted.note();
            noted.clear();
        };
        assert_eq!(named("cleared", note_and_clear), "");
    }
}
