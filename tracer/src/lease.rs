//! Leases: the readers of the tables' entries, whose memory is given back only when there is no reader.
//!
//! The tables are emptied when a trace is over. A window of a flight recorder is written without a lock, by a writer that may
//! take as long as it wants: until after its recording has ended, and another one has begun and ended. So it does not help
//! to ask whether the *last* trace has readers. Each reader, of whatever trace, has a lease, and a reference to an entry
//! borrows from it. The tables are emptied by means of [`Sole`], which exists only while there is no lease.
//!
//! ```text
//!   leases      0, 1, 2, ..   that many readers
//!               EMPTYING      the tables are being emptied: there is no lease, and none is given
//! ```
//!
//! A forked child counts the leases of its parent's other threads, which it does not have: its tables are never emptied.

use rtprof_runtime::primitive::{AtomicUsize, Ordering};

const EMPTYING: usize = usize::MAX;

/// The number of leases.
pub(crate) struct Leases(AtomicUsize);

impl Leases {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self(AtomicUsize::new(0))
        }
    }

    /// Returns a lease. `None` while the tables are being emptied.
    pub(crate) fn lease(&'static self) -> Option<Lease> {
        let more = |leases| (leases != EMPTYING).then(|| leases + 1);
        // Acquire: what emptied the tables is over.
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok().map(|_| Lease(self))
    }
}

/// While it exists, the entries of the tables stay where they are.
pub(crate) struct Lease(&'static Leases);

impl Lease {
    /// Ends this lease, and returns the right to empty the tables if it was the last one.
    pub(crate) fn end(self) -> Option<Sole> {
        let leases = self.0;
        // The count below is this lease's end.
        core::mem::forget(self);
        let less = |count| Some(if count == 1 { EMPTYING } else { count - 1 });
        // Release: this lease's reads are over. Acquire: so are those of the others, which have ended before.
        let was = leases.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        (was == Ok(1)).then(|| Sole(leases))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Release: this lease's reads are over.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// The right to empty the tables: there is no lease while it exists.
pub(crate) struct Sole(&'static Leases);

impl Drop for Sole {
    fn drop(&mut self) {
        // Release: the next lease sees the tables empty.
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_may_empty_the_tables() {
        let leases: &'static Leases = Box::leak(Box::new(Leases::new()));
        let (first, second) = (leases.lease().unwrap(), leases.lease().unwrap());
        assert!(first.end().is_none(), "there is another");
        let sole = second.end().expect("there is no other");
        assert!(leases.lease().is_none(), "they are being emptied");
        drop(sole);
        let (first, second) = (leases.lease().unwrap(), leases.lease().unwrap());
        drop(second);
        assert!(first.end().is_some(), "the other one has ended");
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// The tables.
    struct Entries(UnsafeCell<u32>);

    // SAFETY: loom checks each access.
    unsafe impl Sync for Entries {}
    // SAFETY: as above.
    unsafe impl Send for Entries {}

    fn end(lease: Lease, entries: &Entries) {
        if let Some(_sole) = lease.end() {
            // SAFETY: loom checks it.
            entries.0.with_mut(|entry| unsafe { *entry += 1 });
        }
    }

    fn read(entries: &Entries) -> u32 {
        // SAFETY: loom checks it.
        entries.0.with(|entry| unsafe { *entry })
    }

    /// A window of an earlier trace is read while the next trace ends, and a third one begins: what they read stays.
    #[test]
    fn loom_entries_stay_while_they_are_read() {
        loom::model(|| {
            let leases: &'static Leases = Box::leak(Box::new(Leases::new()));
            let entries = Arc::new(Entries(UnsafeCell::new(0)));
            let (window, trace) = (leases.lease().unwrap(), leases.lease().unwrap());
            let writer = {
                let entries = entries.clone();
                thread::spawn(move || {
                    assert_eq!(read(&entries), 0);
                    drop(window);
                })
            };
            let next = {
                let entries = entries.clone();
                thread::spawn(move || {
                    if let Some(lease) = leases.lease() {
                        let first = read(&entries);
                        assert_eq!(read(&entries), first);
                        end(lease, &entries);
                    }
                })
            };
            end(trace, &entries);
            writer.join().unwrap();
            next.join().unwrap();
        });
    }
}
