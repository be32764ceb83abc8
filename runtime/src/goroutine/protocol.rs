//! Who records which goroutine in a snapshot, without stopping one.
//!
//! Problem: a snapshot reads the stacks of goroutines that wait. One of them may be woken meanwhile, and a stack that is
//! read while its owner returns from it is no stack. Go stops the world for the moment in which a snapshot begins; nothing
//! stops here.
//!
//! Scheme: a snapshot has a number. It begins when its number is *published*: that is the cut. Each goroutine has a word
//! that says how far the snapshot of some number has come with it:
//!
//! | word | state | who may go on |
//! |---|---|---|
//! | of an earlier snapshot, or 0 | *absent* | anybody may claim the goroutine, by a compare-and-swap to in-progress |
//! | in-progress | its stack is being read | the one that claimed it; the goroutine itself waits before it returns from its wait |
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
//! A goroutine that is about to run clears the frame that it has left for others ([`super::parked`]), and then looks
//! whether a snapshot goes on. If so it records itself first, or waits for whoever does. The coordinator claims it, and then
//! looks at that frame. Between the two steps of each stands a fence: so if the coordinator saw the frame, the goroutine
//! sees the claim, and waits before it touches the stack.
//!
//! One that runs, or waits for something else, is asked by a signal ([`super::asking`]). The handler interrupts the goroutine
//! anywhere, also while it records itself: so it claims the goroutine as everybody does, and where it comes too late it does
//! nothing and never waits.
//!
//! A snapshot is *closed* before its memory is used for anything else: every goroutine that is still absent becomes
//! satisfied, so that none begins to record itself too late, and the coordinator waits for those in progress.
//!
//! # Forks
//!
//! In a forked child a snapshot goes on that has no coordinator. [`Snapshots::forget`] ends it; where a child was made
//! without the C library's knowledge, the number of the process tells.

use crate::errno;
use crate::hidden::{self, Calls};
use crate::nap::nap;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence, yield_now};

use super::parked::{Parked, ParkedAt};

lazy_under_loom! {
    pub(crate) static SNAPSHOTS: Snapshots = Snapshots::new();
}

/// The snapshot that goes on.
pub(crate) struct Snapshots {
    /// Its number; 0 for none.
    current: AtomicU64,
    /// The number of the last one that began. Of the coordinator.
    last: AtomicU64,
    /// The process of the coordinator.
    process: AtomicU32,
}

/// How far a snapshot has come with a goroutine: four times its number, and one of the states below.
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

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The caller has it. It was absent, with this word.
    Claimed(u64),
    InProgress,
    Satisfied,
    /// A later snapshot has begun.
    Late,
}

/// What the coordinator found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The goroutine is recorded.
    Satisfied,
    /// It began after the cut.
    Born,
    /// It records itself.
    RecordsItself,
    /// It runs.
    Runs,
}

impl Snapshots {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self { current: AtomicU64::new(0), last: AtomicU64::new(0), process: AtomicU32::new(0) }
        }
    }

    /// The number of the snapshot that goes on; 0 for none.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Publishes the next snapshot's number. By one coordinator at a time, of this process.
    pub(crate) fn publish(&self, process: u32) -> u64 {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(number, Ordering::Relaxed);
        // That of a ghost, in a child that was made without the C library's knowledge.
        self.withdraw();
        fence(Ordering::SeqCst);
        self.process.store(process, Ordering::Relaxed);
        // Release: what the coordinator has prepared is there for whoever records itself.
        self.current.store(number, Ordering::Release);
        // A goroutine that begins either sees the number, or is seen by the coordinator from here on.
        fence(Ordering::SeqCst);
        number
    }

    /// Nobody begins to record itself any more. [`Progress::close`] of all goroutines follows.
    pub(crate) fn withdraw(&self) {
        // Release: whoever sees none, and changes its stack, does so after the coordinator has read it.
        self.current.store(0, Ordering::Release);
    }

    /// This is a forked child.
    pub(crate) fn forget(&self) {
        self.withdraw();
    }

    /// To be called by a goroutine that was parked and is about to run, after [`Parked::end`]: `record` puts it into the
    /// snapshot that goes on, if there is one and it is not there yet. Without one, it only waits for whoever reads its
    /// stack.
    #[inline]
    pub(crate) fn before_running(
        &self,
        own: &Progress,
        process: impl Fn() -> u32,
        record: Option<impl FnOnce()>,
    ) {
        fence(Ordering::SeqCst);
        if self.current.load(Ordering::Acquire) != 0 {
            self.join(own, process, record);
        }
    }

    #[cold]
    fn join(&self, own: &Progress, process: impl Fn() -> u32, mut record: Option<impl FnOnce()>) {
        let mut tries = 0;
        loop {
            let number = self.current();
            // A ghost's: what it has claimed it will never give up.
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
                // By the coordinator; or by this very goroutine, which a signal handler has interrupted that waits itself. In
                // that case too this comes to an end: the coordinator never waits for it before it withdraws the number.
                Claim::InProgress => give_way(&mut tries),
                Claim::Late => {}
            }
        }
    }
}

impl Progress {
    /// A goroutine begins: it belongs in no snapshot that goes on.
    pub(crate) fn begin(&self, snapshots: &Snapshots) {
        // See `publish`.
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

    /// The caller, who has claimed it, has recorded it.
    fn finish(&self, number: u64) {
        self.0.store(word(number, SATISFIED), Ordering::Release);
    }

    /// By the coordinator of snapshot `number`: `record` puts the goroutine into the snapshot if it waits, from where it
    /// waits.
    pub(crate) fn visit(&self, number: u64, parked: &Parked, record: impl FnOnce(ParkedAt)) -> Visit {
        let seen = self.0.load(Ordering::Acquire);
        if number_of(seen) == number {
            return match seen {
                _ if seen == word(number, BORN) => Visit::Born,
                _ if seen == word(number, IN_PROGRESS) => Visit::RecordsItself,
                _ => Visit::Satisfied,
            };
        }
        // One that runs is not claimed in vain: it would wait, if it came to wait meanwhile.
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
                        // Unless the slot is another goroutine's by now, which begins satisfied.
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

    /// By the coordinator, of its own goroutine. It is satisfied before `record` has put it into the snapshot, which nobody
    /// else reads before its end: a signal handler of this thread that waits would wait for ever for one in progress.
    pub(crate) fn settle_own(&self, number: u64, record: impl FnOnce()) {
        if let Claim::Claimed(_) = self.claim(number) {
            self.finish(number);
            record();
        }
    }

    /// By the coordinator, or by the goroutine in a signal handler: `record` puts it into the snapshot, unless it is there
    /// or another one does.
    pub(crate) fn settle(&self, number: u64, record: impl FnOnce()) {
        if let Claim::Claimed(_) = self.claim(number) {
            record();
            self.finish(number);
        }
    }

    /// By the goroutine in a signal handler, whose thread the coordinator knows, but not as a goroutine: it has begun since,
    /// or has begun so shortly before that its number was not there yet.
    pub(crate) fn settle_stranger(&self, number: u64, record: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) == word(number, BORN) {
            record();
        } else {
            self.settle(number, record);
        }
    }

    /// By the coordinator, when the snapshot was withdrawn: nobody records the goroutine any more when this returns.
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

/// What is waited for takes a microsecond, unless its thread has lost its core; and one of a real-time policy that only
/// yields would keep an ordinary one from getting it back.
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
