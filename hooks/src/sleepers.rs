//! A table of the threads that wait at an address: so that the thread that wakes one of them is charged for the wait,
//! and the wait ends at the wake and not when the kernel runs the thread.
//!
//! ```text
//!   home of an address           cells
//!   ┌──────────────────┐         ┌─────────┬───────┬──────┬───────────────┬──────┐
//!   │ waiters │ reach  │ ──────► │ address │ since │ bits │ goroutine, id │ note │  at the home's number, or up to `reach`
//!   └──────────────────┘         └─────────┴───────┴──────┴───────────────┴──────┘  further on
//! ```
//!
//! A home and the cell of the same number are one cache line, so that most waits and wakes share a single line: each
//! line that goes to another core and back costs as much as the rest of the hook.
//!
//! A thread takes the first free cell from the home of its address on, and raises the home's reach to it. A wake reads
//! the home; mostly it shows no waiter, and that is all. Otherwise the wake looks at the cells within reach and takes
//! the waiters that have waited longest, as the kernel does. It takes a waiter by a compare-and-swap of `since`, from
//! the tick at which the wait began to the tick at which it ends with the lowest bit set. The thread that succeeds is
//! charged for the wait, if the waiter has chosen that: it notes how many waits this one stands for in the mutex profile.
//! (The waiter decides, because what a charge needs must be noted before it waits.)
//!
//! If the lock itself is at the address, and not a word that is used for one sleep, a wait continues until the thread
//! has the lock, through wakes after which another thread was faster. Then each unlock is charged with the ticks that
//! every waiter has waited since the unlock before it ([`Sleepers::charge`]), and `since` becomes its tick. The first
//! unlock sets the bit and counts the wait.
//!
//! A thread that is cancelled in its wait leaves its cell behind. Its goroutine has ended then, and the slot has
//! another id or none. The next thread that finds such a cell frees it, by a compare-and-swap of `since` too. (The end
//! of a thread without a goroutine cannot be detected, so its cell stays.)
//!
//! In a forked child the table holds the parent's threads. The first thread that waits or wakes there empties it.
//!
//! A wait that finds no free cell is recorded as a wait that ended without a wake.
//!
//! # Locks
//! None.

use rtprof_runtime::primitive::AtomicU64;
use rtprof_runtime::wait_site::{NotedSite, WaitSite};

use crate::account::Charge;
use crate::primitive::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::wait::{Goroutine, process};

const CELLS: usize = if cfg!(loom) { 2 } else { 1 << 12 };

/// In place of an address: the cell is free.
const FREE: usize = 0;
/// The cell is being filled. No futex lies at an odd address.
const FILLING: usize = 1;

/// Bit of `since`: the wait has ended, or, at a lock, was charged up to this tick.
const IS_WOKEN: u64 = 1;
/// Value of `since`: the thread no longer waits.
const LEFT: u64 = IS_WOKEN;

/// A cell, and the home of the same number, which has nothing to do with it.
#[repr(align(64))]
struct Line {
    home: Home,
    cell: Cell,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

struct Cell {
    address: AtomicUsize,
    since: AtomicU64,
    goroutine: AtomicPtr<Goroutine>,
    /// The lower half of the goroutine's id.
    id: AtomicU32,
    bits: AtomicU32,
    /// As in [`Note`].
    weight: AtomicU64,
    site: NotedSite,
}

/// What a waiter notes for the mutex profile.
#[derive(Clone, Copy, Default)]
pub(crate) struct Note {
    /// How many waits this one stands for; 0 if it is not recorded.
    pub(crate) weight: u64,
    /// Where it waits, if that is recorded.
    pub(crate) site: Option<&'static WaitSite>,
}

/// Two halves of a word: how many threads wait at the addresses of one home, and the largest distance of a cell that
/// one of them used.
struct Home(AtomicU64);

/// The table.
pub(crate) struct Sleepers {
    lines: [Line; CELLS],
    /// The process whose threads these are; [`UNUSED`] before the first one waits.
    process: AtomicU32,
}

/// In place of a process.
const UNUSED: u32 = 0;
/// In place of a process, while a thread empties the cells. No process has this number.
const EMPTYING: u32 = u32::MAX;

impl Home {
    fn read(&self) -> (u32, u32) {
        let word = self.0.load(Ordering::Acquire);
        (word as u32, (word >> 32) as u32)
    }

    fn change(&self, change: impl Fn(u32, u32) -> (u32, u32)) {
        let both = |word: u64| {
            let (waiters, reach) = change(word as u32, (word >> 32) as u32);
            Some(u64::from(waiters) | u64::from(reach) << 32)
        };
        // Never fails, as a change is always made.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, both);
    }
}

/// A tick without the bit that `since` uses.
pub(crate) fn rounded(tick: u64) -> u64 {
    tick & !IS_WOKEN
}

impl Cell {
    /// Whether the thread whose cell it was has ended.
    fn is_abandoned(&self) -> bool {
        self.goroutine().is_some_and(|goroutine| goroutine.id() as u32 != self.id.load(Ordering::Relaxed))
    }

    fn note(&self) -> Note {
        Note { weight: self.weight.load(Ordering::Relaxed), site: self.site.get() }
    }

    fn goroutine(&self) -> Option<&'static Goroutine> {
        // SAFETY: null, or from a reference to a slot, which is never freed.
        unsafe { self.goroutine.load(Ordering::Relaxed).as_ref() }
    }
}

fn home_of(address: usize) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all of the address.
    ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CELLS.ilog2())) as usize
}

/// A waiter's cell. Plain data without a destructor, because a thread may be cancelled in its wait.
#[derive(Clone, Copy)]
pub(crate) struct SleeperCell {
    home: usize,
    distance: usize,
    /// As in the cell.
    id: u32,
}

impl Sleepers {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            lines: [const {
                Line {
                    home: Home(AtomicU64::new(0)),
                    cell: Cell {
                        address: AtomicUsize::new(FREE),
                        since: AtomicU64::new(0),
                        goroutine: AtomicPtr::new(core::ptr::null_mut()),
                        id: AtomicU32::new(0),
                        bits: AtomicU32::new(0),
                        weight: AtomicU64::new(0),
                        site: NotedSite::none(),
                    },
                }
            }; CELLS],
            process: AtomicU32::new(UNUSED),
        }
    }

    fn cell(&self, home: usize, distance: usize) -> &Cell {
        &self.lines[(home + distance) % CELLS].cell
    }

    fn home(&self, number: usize) -> &Home {
        &self.lines[number].home
    }

    /// Enters the current thread, which is about to wait at `address` and has done so since the tick `start`, which is
    /// [`rounded`]. `None` if no cell is free.
    pub(crate) fn enter(
        &self,
        address: usize,
        bits: u32,
        start: u64,
        goroutine: Option<&'static Goroutine>,
        note: Note,
    ) -> Option<SleeperCell> {
        // The kernel will refuse such an address.
        if address <= FILLING || !self.is_of_this_process() {
            return None;
        }
        let home = home_of(address);
        let distance = self.take_free(home).or_else(|| {
            self.free_abandoned();
            self.take_free(home)
        })?;
        let cell = self.cell(home, distance);
        // The order matters: see `cells_at`.
        cell.bits.store(bits, Ordering::Relaxed);
        // A goroutine that was marked as ended by mistake, as can happen in a child of a raw `fork`, counts as none.
        let goroutine = goroutine.filter(|goroutine| goroutine.id() != 0);
        let id = goroutine.map_or(0, Goroutine::id) as u32;
        cell.id.store(id, Ordering::Relaxed);
        let goroutine = goroutine.map_or(core::ptr::null_mut(), |own| (&raw const *own).cast_mut());
        cell.goroutine.store(goroutine, Ordering::Relaxed);
        cell.weight.store(note.weight, Ordering::Relaxed);
        cell.site.set(note.site);
        cell.since.store(start, Ordering::Release);
        cell.address.store(address, Ordering::Release);
        self.home(home).change(|waiters, reach| (waiters + 1, reach.max(distance as u32)));
        Some(SleeperCell { home, distance, id })
    }

    /// Takes a free cell, and returns how far from `home` it is.
    fn take_free(&self, home: usize) -> Option<usize> {
        let is_taken = |cell: &Cell| {
            cell.address.load(Ordering::Relaxed) == FREE
                && cell.address.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        (0..CELLS).find(|&distance| is_taken(self.cell(home, distance)))
    }

    /// Ends the wait of the current thread in this cell. Returns the tick at which another thread woke it, or was
    /// charged for it last, if one did.
    ///
    /// `None` also if the process was forked meanwhile, and the table was emptied.
    pub(crate) fn leave(&self, place: SleeperCell) -> Option<u64> {
        let cell = self.cell(place.home, place.distance);
        if cell.id.load(Ordering::Relaxed) != place.id {
            return None;
        }
        let since = cell.since.swap(LEFT, Ordering::AcqRel);
        if since == LEFT {
            return None;
        }
        self.free(cell, place.home);
        (since & IS_WOKEN != 0).then_some(rounded(since))
    }

    /// Frees a cell that the caller has marked as left.
    fn free(&self, cell: &Cell, home: usize) {
        cell.address.store(FREE, Ordering::Release);
        self.home(home).change(|waiters, reach| match waiters.saturating_sub(1) {
            0 => (0, 0),
            more => (more, reach),
        });
    }

    /// Frees a cell whose thread has ended, unless another thread does. `since` was read before the check for the end:
    /// if it is unchanged, no other thread has used the cell meanwhile.
    #[cold]
    fn free_abandoned_one(&self, cell: &Cell, since: u64) {
        let address = cell.address.load(Ordering::Relaxed);
        if address > FILLING
            && cell.since.compare_exchange(since, LEFT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.free(cell, home_of(address));
        }
    }

    #[cold]
    fn free_abandoned(&self) {
        for Line { cell, .. } in &self.lines {
            let since = cell.since.load(Ordering::Acquire);
            if since != LEFT && cell.is_abandoned() {
                self.free_abandoned_one(cell, since);
            }
        }
    }

    /// Whether any thread may be waiting at `address`.
    #[inline]
    pub(crate) fn are_any(&self, address: usize) -> bool {
        self.home(home_of(address)).read().0 != 0
    }

    /// Takes, at the tick `now`, at most `count` of the threads that wait at `address` with a bit in common with
    /// `bits`, the longest waiting first. Returns the charge of those that have chosen it, as many times as they stand
    /// for, and the site of one of them. Calls `unblock` with the goroutine of each and the tick at which it began to wait.
    pub(crate) fn wake(
        &self,
        address: usize,
        count: u32,
        bits: u32,
        now: u64,
        unblock: impl Fn(&'static Goroutine, u64),
    ) -> (Charge, Option<&'static WaitSite>) {
        let home = home_of(address);
        let now = rounded(now);
        let (mut charge, mut site) = (Charge::default(), None);
        let mut take = |cell: &Cell, since| {
            let (goroutine, note) = (cell.goroutine(), cell.note());
            let woken =
                cell.since.compare_exchange(since, now | IS_WOKEN, Ordering::AcqRel, Ordering::Relaxed);
            if woken.is_ok() {
                charge.add(note.weight, 1, now.saturating_sub(since));
                site = note.site.or(site);
                if let Some(goroutine) = goroutine {
                    unblock(goroutine, since);
                }
            }
        };
        if count >= self.home(home).read().0 {
            self.waiting(home, address, bits, now).for_each(|(cell, since)| take(cell, since));
            return (charge, site);
        }
        // A waiter that another thread has taken meanwhile counts too, because it was woken.
        for _ in 0..count {
            let Some((cell, since)) = self.waiting(home, address, bits, now).min_by_key(|&(_, since)| since)
            else {
                break;
            };
            take(cell, since);
        }
        (charge, site)
    }

    /// Charges the unlock at `now` of the lock at `address` with the time that each waiter has waited since the last
    /// charge, if it has chosen that, as many times as it stands for. All go on waiting, and one of them may find the lock
    /// free. Calls `told` with the goroutine of each.
    #[cfg(not(target_feature = "crt-static"))]
    pub(crate) fn charge(
        &self,
        address: usize,
        now: u64,
        mut told: impl FnMut(&'static Goroutine),
    ) -> Charge {
        let now = rounded(now);
        let mut charge = Charge::default();
        for (cell, since) in self.cells_at(home_of(address), address, now) {
            let (goroutine, weight) = (cell.goroutine(), cell.note().weight);
            let charged =
                cell.since.compare_exchange(since, now | IS_WOKEN, Ordering::AcqRel, Ordering::Relaxed);
            if charged.is_ok() {
                charge.add(weight, u64::from(since & IS_WOKEN == 0), now - rounded(since));
                if let Some(goroutine) = goroutine {
                    told(goroutine);
                }
            }
        }
        charge
    }

    /// The waiters at an address since before `now`, each with the tick at which it began.
    fn waiting(
        &self,
        home: usize,
        address: usize,
        bits: u32,
        now: u64,
    ) -> impl Iterator<Item = (&Cell, u64)> {
        let is_meant = move |&(cell, since): &(&Cell, u64)| {
            since & IS_WOKEN == 0 && cell.bits.load(Ordering::Relaxed) & bits != 0
        };
        self.cells_at(home, address, now).filter(is_meant)
    }

    /// The cells of the waiters at an address since before `now`, with their `since`.
    fn cells_at(&self, home: usize, address: usize, now: u64) -> impl Iterator<Item = (&Cell, u64)> {
        let (waiters, reach) = if self.is_of_this_process() { self.home(home).read() } else { (0, 0) };
        let cells = (0..=reach as usize).filter(move |_| waiters > 0);
        cells.filter_map(move |distance| {
            let cell = self.cell(home, distance);
            // `since` is read first. Then the address and the bits belong to the same wait or to a later one; if to a
            // later one, `since` has changed, and the compare-and-swap fails.
            let since = cell.since.load(Ordering::Acquire);
            let is_meant =
                since != LEFT && rounded(since) <= now && cell.address.load(Ordering::Acquire) == address;
            if is_meant && cell.is_abandoned() {
                self.free_abandoned_one(cell, since);
                return None;
            }
            is_meant.then_some((cell, since))
        })
    }

    /// Whether the cells belong to this process's threads. They do, except while a thread of a forked child empties
    /// them.
    pub(crate) fn is_of_this_process(&self) -> bool {
        let (own, of) = (process::number(), self.process.load(Ordering::Acquire));
        of == own || self.empty_for(own, of)
    }

    /// Empties the cells in a forked child, whose one thread may be in a wait.
    #[cfg(not(loom))]
    pub(crate) fn forked(&self) {
        // The number of the process does not identify it: the parent may have the same number in another namespace.
        if self.process.load(Ordering::Relaxed) != UNUSED {
            self.empty();
            self.process.store(process::number(), Ordering::Release);
        }
    }

    /// Empties the cells, which belong to the process `of`, for the current one. Returns whether they belong to the
    /// current one now.
    #[cold]
    fn empty_for(&self, own: u32, of: u32) -> bool {
        let changed = |to| self.process.compare_exchange(of, to, Ordering::AcqRel, Ordering::Acquire);
        if of == UNUSED {
            // An unused table needs no emptying, which would touch its memory. Another thread may have been faster.
            return changed(own).map_or_else(|seen| seen == own, |_| true);
        }
        if !process::is_shared_with_vfork() {
            // A child of `vfork` has another number, but shares the cells with its parent. So they stay here, and
            // children of the C library's `fork` empty them in `forked`.
            return true;
        }
        if of == EMPTYING || changed(EMPTYING).is_err() {
            return false;
        }
        self.empty();
        self.process.store(own, Ordering::Release);
        true
    }

    fn empty(&self) {
        for Line { home, cell } in &self.lines {
            cell.since.store(LEFT, Ordering::Relaxed);
            cell.address.store(FREE, Ordering::Relaxed);
            home.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "sleepers_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "sleepers_loom_tests.rs"]
mod loom_tests;
