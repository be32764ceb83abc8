//! The protocol by which a snapshot records each goroutine once, without stopping any.
//!
//! Problem: a snapshot reads the stacks of waiting goroutines. One of them may be woken during the read, and a stack
//! that is read while its owner returns through it is invalid. Go stops the world at the moment in which a snapshot
//! begins; nothing stops here.
//!
//! Scheme: a snapshot has a number. It begins when its number is *published*: that is the cut. Each goroutine has a
//! word that says how far the snapshot of some number has progressed with it:
//!
//! | word | state | what may happen next |
//! |---|---|---|
//! | of an earlier snapshot, or 0 | *absent* | any thread may claim the goroutine by a compare-and-swap |
//! | in-progress | its stack is being read | only the claimer continues; the goroutine waits before it returns |
//! | satisfied | it is in the snapshot, or was left out at its end | nothing is left to do |
//! | born | it began after the cut, and does not belong in the snapshot | nothing is left to do |
//!
//! ```text
//!                     claimed by the coordinator, or by itself             recorded
//!       absent ────────────────────────────────────────► in-progress ────────────────► satisfied
//!         ▲  ▲                                                │                            ▲
//!         │  └───── the coordinator found that it runs ───────┘                            │
//!         │                                                                                │
//!         └ next number                                                    left out at the end
//! ```
//!
//! A goroutine that is about to run clears its saved frame ([`super::parked`]), and then checks for a current snapshot.
//! If it finds one, it records itself first, or waits for the thread that is recording it. The coordinator claims the
//! goroutine, and then reads the saved frame. A fence stands between the two steps of each: so if the coordinator saw
//! the frame, the goroutine sees the claim, and waits before it touches the stack.
//!
//! A goroutine that runs, or waits for something else, receives a signal (`snapshot::asking`). The handler may
//! interrupt the goroutine anywhere, also while it records itself: so the handler claims the goroutine as any other
//! thread does; if the claim fails, it does nothing and never waits.
//!
//! A snapshot is *closed* before its memory is reused: every goroutine that is still absent becomes satisfied, so that
//! none begins to record itself too late, and the coordinator waits for those in progress.
//!
//! # Forks
//!
//! A forked child inherits a current snapshot that has no coordinator. [`Snapshots::forget`] ends it; in a child made
//! without the C library's fork handlers, the process id reveals that the snapshot is the parent's.

use crate::hook::errno;
use crate::hook::hidden::{self, Calls};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence, yield_now};
use crate::thread::nap::nap;

use super::parked::{Parked, ParkedAt};

lazy_under_loom! {
    pub(crate) static SNAPSHOTS: Snapshots = Snapshots::new();
}

/// The current snapshot.
pub(crate) struct Snapshots {
    /// The number of the current snapshot; 0 for none.
    current: AtomicU64,
    /// The number of the last snapshot that began. Only the coordinator uses it.
    last: AtomicU64,
    /// The process id of the coordinator.
    process: AtomicU32,
}

/// The progress of a snapshot with a goroutine: four times the snapshot's number, plus one of the states below.
pub(crate) struct Progress(AtomicU64);

const SATISFIED: u64 = 0;
const IN_PROGRESS: u64 = 1;
const BORN: u64 = 2;

fn word(number: u64, state: u64) -> u64 {
    number << 2 | state
}

fn number_of(word: u64) -> u64 {
    word >> 2
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The caller has claimed the goroutine. It was absent, with this word.
    Claimed(u64),
    InProgress,
    Satisfied,
    /// A later snapshot has begun.
    Late,
}

/// The coordinator's finding about a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The goroutine is recorded.
    Satisfied,
    /// It began after the cut.
    Born,
    /// The goroutine is recording itself.
    RecordsItself,
    /// The goroutine runs.
    Runs,
}

impl Snapshots {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self { current: AtomicU64::new(0), last: AtomicU64::new(0), process: AtomicU32::new(0) }
        }
    }

    /// Returns the number of the current snapshot; 0 for none.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Publishes the next snapshot's number. Called by one coordinator at a time, of this process.
    pub(crate) fn publish(&self, process: u32) -> u64 {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(number, Ordering::Relaxed);
        // Withdraws the parent's snapshot in a child that was made without the C library's fork handlers.
        self.withdraw();
        fence(Ordering::SeqCst);
        self.process.store(process, Ordering::Relaxed);
        // Release: a goroutine that records itself sees what the coordinator has prepared.
        self.current.store(number, Ordering::Release);
        // A goroutine that begins either sees the number, or is seen by the coordinator after this fence.
        fence(Ordering::SeqCst);
        number
    }

    /// Ends the snapshot: no goroutine begins to record itself any more. The coordinator then calls [`Progress::close`]
    /// for every goroutine.
    pub(crate) fn withdraw(&self) {
        // Release: a goroutine that reads 0 and changes its stack does so after the coordinator has read the stack.
        self.current.store(0, Ordering::Release);
    }

    /// Ends the inherited snapshot in a forked child.
    pub(crate) fn forget(&self) {
        self.withdraw();
    }

    /// Called by a goroutine that was parked and is about to run, after [`Parked::end`]. If there is a current snapshot
    /// that lacks the goroutine, the function that `record` returns adds it. If it returns none, this only waits for a
    /// thread that reads its stack.
    #[inline]
    pub(crate) fn before_running<F: FnOnce()>(
        &self,
        own: &Progress,
        process: impl Fn() -> u32,
        record: impl FnOnce() -> Option<F>,
    ) {
        fence(Ordering::SeqCst);
        if self.current.load(Ordering::Acquire) != 0 {
            self.join(own, process, record());
        }
    }

    #[cold]
    fn join(&self, own: &Progress, process: impl Fn() -> u32, mut record: Option<impl FnOnce()>) {
        let mut tries = 0;
        loop {
            let number = self.current();
            // A snapshot of the parent process: its claims are never released.
            if number == 0 || self.process.load(Ordering::Relaxed) != process() {
                return;
            }
            if record.is_none() {
                match own.is_in_progress(number) {
                    true => give_way(&mut tries),
                    false => return,
                }
                continue;
            }
            match own.claim(number) {
                Claim::Claimed(_) => {
                    if let Some(record) = record.take() {
                        record();
                    }
                    own.finish(number);
                    return;
                }
                Claim::Satisfied => return,
                // Claimed by the coordinator, or by this same goroutine, which was recording itself when a signal
                // handler that waits interrupted it. The second case ends too: the coordinator never waits for the
                // goroutine before it withdraws the number.
                Claim::InProgress => give_way(&mut tries),
                Claim::Late => {}
            }
        }
    }
}

impl Progress {
    /// Marks a goroutine that begins as born: it does not belong in a current snapshot.
    pub(crate) fn begin(&self, snapshots: &Snapshots) {
        // Pairs with the second fence in `publish`.
        fence(Ordering::SeqCst);
        self.0.store(word(snapshots.current(), BORN), Ordering::Relaxed);
    }

    fn is_in_progress(&self, number: u64) -> bool {
        self.0.load(Ordering::Acquire) == word(number, IN_PROGRESS)
    }

    fn claim(&self, number: u64) -> Claim {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if number_of(seen) > number {
                return Claim::Late;
            }
            if number_of(seen) == number {
                return if seen == word(number, IN_PROGRESS) { Claim::InProgress } else { Claim::Satisfied };
            }
            let claimed = word(number, IN_PROGRESS);
            match self.0.compare_exchange(seen, claimed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Claim::Claimed(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Marks the goroutine as recorded. The caller has claimed it.
    fn finish(&self, number: u64) {
        self.0.store(word(number, SATISFIED), Ordering::Release);
    }

    /// Visits the goroutine for snapshot `number`: `record` adds the goroutine to the snapshot from its saved frame, if
    /// it waits. Called by the coordinator.
    pub(crate) fn visit(&self, number: u64, parked: &Parked, record: impl FnOnce(ParkedAt)) -> Visit {
        let seen = self.0.load(Ordering::Acquire);
        if number_of(seen) == number {
            return match seen {
                _ if seen == word(number, BORN) => Visit::Born,
                _ if seen == word(number, IN_PROGRESS) => Visit::RecordsItself,
                _ => Visit::Satisfied,
            };
        }
        // A running goroutine is not claimed needlessly: it would have to wait for the claim if it parked and woke
        // during the claim.
        if !parked.is_waiting() {
            return Visit::Runs;
        }
        match self.claim(number) {
            Claim::Claimed(before) => {
                fence(Ordering::SeqCst);
                match parked.read() {
                    Some(at) => {
                        record(at);
                        self.finish(number);
                        Visit::Satisfied
                    }
                    None => {
                        // This fails if the slot holds another goroutine by now, which began as born.
                        let claimed = word(number, IN_PROGRESS);
                        let _ =
                            self.0.compare_exchange(claimed, before, Ordering::Release, Ordering::Relaxed);
                        Visit::Runs
                    }
                }
            }
            Claim::InProgress => Visit::RecordsItself,
            Claim::Satisfied | Claim::Late => Visit::Satisfied,
        }
    }

    /// Records the coordinator's own goroutine. It becomes satisfied before `record` adds it to the snapshot, which no
    /// other thread reads before the end: a signal handler of this thread that waits would wait for ever for a
    /// goroutine in progress.
    pub(crate) fn settle_own(&self, number: u64, record: impl FnOnce()) {
        if let Claim::Claimed(_) = self.claim(number) {
            self.finish(number);
            record();
        }
    }

    /// Runs `record` to add the goroutine to the snapshot, unless it is recorded or claimed already. Called by the
    /// coordinator, or by the goroutine in a signal handler.
    pub(crate) fn settle(&self, number: u64, record: impl FnOnce()) {
        if let Claim::Claimed(_) = self.claim(number) {
            record();
            self.finish(number);
        }
    }

    /// Records a goroutine whose thread the coordinator knows only as a thread: the goroutine began since, or so
    /// shortly before that its id was not visible yet. Called by the goroutine in a signal handler.
    pub(crate) fn settle_stranger(&self, number: u64, record: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) == word(number, BORN) {
            record();
        } else {
            self.settle(number, record);
        }
    }

    /// Closes the withdrawn snapshot for this goroutine: no thread records it any more when this returns. Called by the
    /// coordinator.
    pub(crate) fn close(&self, number: u64) {
        let mut tries = 0;
        loop {
            match self.claim(number) {
                Claim::Claimed(_) => return self.finish(number),
                Claim::InProgress => give_way(&mut tries),
                Claim::Satisfied | Claim::Late => return,
            }
        }
    }
}

/// Yields, and naps after 64 tries, until another thread has finished. The wait takes a microsecond, unless the other
/// thread has lost its core; a waiter with a real-time policy that only yielded would keep an ordinary thread from
/// getting the core back.
pub fn give_way(tries: &mut u32) {
    *tries += 1;
    let nap = || match *tries {
        ..=64 => yield_now(),
        _ => nap(),
    };
    errno::kept(|| hidden::hiding(Calls::WAITS, nap));
}

impl Default for Progress {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

#[cfg(all(test, loom))]
#[path = "protocol_models.rs"]
mod loom_tests;
