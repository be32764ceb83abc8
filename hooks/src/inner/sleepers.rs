//! A table of the threads that wait at an address: so that the thread that wakes one of them is charged for the wait,
//! and the wait ends at the wake and not when the kernel runs the thread.
//!
//! ```text
//!   home of an address           cells
//!   ┌──────────────────┐         ┌─────────┬───────┬──────┬───────────────┬──────┐
//!   │ watched │ reach  │ ──────► │ address │ since │ bits │ goroutine, id │ note │  at the home's number, or up to its reach
//!   └──────────────────┘         └─────────┴───────┴──────┴───────────────┴──────┘  further on
//! ```
//!
//! # Watched waiters
//!
//! A waiter is *watched* if a profile needs the thread that ends its wait or the exact end. The waiter decides that before
//! it waits, because what a charge needs must be noted before. With a budget a few of many waits are watched
//! ([`rtprof_profiler::contention::choose_wait`]).
//!
//! A wake reads the home of its address; mostly no waiter there is watched, and that is all. Otherwise, and while a trace is
//! recorded, the wake looks at the cells within reach and takes the waiters that have waited longest, as the kernel does. It
//! takes a waiter by a compare-and-swap of `since`, from the tick at which the wait began to the tick at which it ends with
//! the lowest bit set. The thread that succeeds is charged for the wait, if the waiter has chosen that: it notes how many
//! waits this one stands for in the mutex profile.
//!
//! So other waiters enter a cell too: a wake that the kernel gives to one of them must not be taken for the wake of a watched
//! one. But they write neither to the home nor to its line, which the wakers read: each line that goes to another core and
//! back costs as much as the rest of the hook. A home and the cell of the same number are one line, for watched waiters, who
//! share it with their waker in any case; homes have even numbers, and other waiters take odd cells. A thread tries the cell
//! of an earlier wait first ([`Hints`]), and the home's reach is only raised, until the last watched waiter leaves and finds it
//! too long.
//!
//! Problem: a waiter that is not watched is woken by a thread that does not look at the table. Until it runs and leaves, its
//! cell still shows a wait. If another waiter, which is watched, is woken in that time, the waker takes the first one,
//! which has waited longer, and nothing is charged for the second. Scheme: if a waiter that stands for several waits of
//! the mutex profile is woken and was not taken, it leaves its cell behind as *owed*, and the next wake at the address,
//! which is probably a wake from the same place, is charged for it. If there is none within a second, the charge is
//! lost. (Where each wait stands for itself, all are watched, and only a wake that no hook sees takes none.)
//!
//! # Locks of the C library
//!
//! If the lock itself is at the address, and not a word that is used for one sleep, a wait continues until the thread
//! has the lock, through wakes after which another thread was faster. Then each unlock is charged with the ticks that
//! every waiter has waited since the unlock before it ([`Sleepers::charge`]), and `since` becomes its tick. The first
//! unlock sets the bit and counts the wait.
//!
//! # Threads that do not come back
//!
//! A thread that is cancelled in its wait leaves its cell when it ends ([`within`](crate::inner::within)). If
//! its end is not noticed, its goroutine has ended nevertheless, and the slot has another id or none. The next thread that
//! finds such a cell, a second old or more, frees it, by a compare-and-swap of `since` too. (The end of a thread without a
//! goroutine cannot be detected, so its cell stays.)
//!
//! In a forked child the table holds the parent's threads. The first thread that waits or wakes there empties it.
//!
//! A wait that finds no free cell is recorded as a wait that ended without a wake.
//!
//! # Locks
//! None.

mod home;

use rtprof_profiler::contention::BlockRecord;
use rtprof_runtime::goroutine::wait_site::{NotedSite, WaitSite};
use rtprof_runtime::memory::atomic_ref::AtomicRef;
use rtprof_runtime::primitive::AtomicU64;

pub(crate) use home::Hints;
use home::{Home, HomeSeen, Reach};

use crate::inner::account::Charge;
use crate::inner::primitive::goroutine::Goroutine;
use crate::inner::primitive::process;
use crate::inner::primitive::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::inner::ticks::LEAST_SLEEP;

/// The threads that wait in interposed calls.
#[cfg(all(rtprof_interposed, not(loom)))]
pub(crate) static SLEEPERS: Sleepers = Sleepers::new();

const CELLS: usize = if cfg!(loom) { 2 } else { 1 << 12 };

/// The distances within a home's reach that are too many if no waiter needs them.
const LONG_REACH: u32 = if cfg!(loom) { 1 } else { 16 };

/// The ticks after which a cell may belong to a thread that has ended unnoticed: about a second, on aarch64 a few. To look for
/// that sooner would read the goroutine's memory, which its thread writes to, at every wake.
const OLD: u64 = match () {
    () if cfg!(loom) => 0,
    () if cfg!(target_arch = "aarch64") => 1 << 27,
    () => 1 << 31,
};

/// In place of an address: the cell is free.
const FREE: usize = 0;
/// The cell is being filled. No futex lies at an odd address.
const FILLING: usize = 1;

/// Bit of `since`: the wait has ended, or, at a lock, was charged up to this tick.
const IS_WOKEN: u64 = 1;
/// Value of `since`: the thread no longer waits.
const LEFT: u64 = IS_WOKEN;
/// Bit of `since`: the thread no longer waits, and no thread was charged for its wait, which took as many ticks as the other
/// bits say. The other bit is set too. No clock gets so far.
const IS_OWED: u64 = 1 << 63;

/// For how long a wait is owed, in ticks.
const OWED_FOR: u64 = if cfg!(loom) { 1000 } else { OLD };
/// The binary logarithm of the unit of ages.
const AGE: u32 = if cfg!(loom) { 0 } else { 20 };

/// A tick in units of 2^[`AGE`] ticks, without the upper bits.
const fn age(tick: u64) -> u32 {
    (tick >> AGE) as u32
}

/// Bit of a cell's note: the home counts this waiter.
const IS_WATCHED: u64 = 1 << 63;
/// The bits of a note that are the weight, and the largest weight: no fraction that is in use comes near.
const WEIGHT: u64 = u32::MAX as u64;

/// A cell, and the home of the same number, which has nothing to do with it. Only homes with even numbers are used.
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
    /// As for the kernel's futex; if the wait is owed, since when, in units of 2^[`AGE`] ticks.
    bits: AtomicU32,
    /// A [`Note`] as a word.
    note: AtomicU64,
    /// Where the thread has waited, if the wait is owed.
    site: NotedSite,
    /// The record of the wake, which asks the thread where it has waited.
    record: AtomicRef<BlockRecord>,
}

/// What a waiter notes for the thread that ends its wait. The default is that of a waiter that is not watched.
#[derive(Clone, Copy, Default)]
pub(crate) struct Note {
    /// Whether a wake must find it.
    pub(crate) is_watched: bool,
    /// How many waits this one stands for in the mutex profile; 0 if it is not recorded.
    pub(crate) weight: u64,
    /// Which function has called the kernel, where that is known.
    pub(crate) caller: Caller,
}

/// The function that has called the kernel, by 31 bits of its return address. They only tell functions apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller(u32);

impl Caller {
    const BITS: u32 = 31;
    /// Of waits that are not for a futex of the program's.
    #[cfg_attr(target_feature = "crt-static", allow(dead_code))]
    pub(crate) const UNKNOWN: Self = Self(0);

    #[inline(always)]
    pub(crate) fn of(return_address: usize) -> Self {
        Self(return_address as u32 & ((1 << Self::BITS) - 1))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl Note {
    /// The word in a cell: whether it is watched, the caller, and the weight. [`UNWATCHED`] of all waiters of which nothing is
    /// needed.
    #[inline(always)]
    fn word(self) -> u64 {
        if !self.is_watched && self.weight == 0 {
            return UNWATCHED;
        }
        let is_watched = if self.is_watched { IS_WATCHED } else { 0 };
        is_watched | u64::from(self.caller.0) << 32 | self.weight.min(WEIGHT)
    }

    fn of_word(word: u64) -> Self {
        let caller = Caller((word >> 32) as u32 & ((1 << Caller::BITS) - 1));
        Self { is_watched: word & IS_WATCHED != 0, weight: word & WEIGHT, caller }
    }
}

/// The word of a waiter that is not watched.
const UNWATCHED: u64 = 0;

/// A thread that is about to wait.
#[derive(Clone, Copy)]
pub(crate) struct Sleeper {
    pub(crate) address: usize,
    /// It is woken by wakes that have one of these in common with it.
    pub(crate) bits: u32,
    /// The tick since which it has waited, [`rounded`].
    pub(crate) start: u64,
    pub(crate) goroutine: Option<&'static Goroutine>,
    pub(crate) note: Note,
}

/// The waits that a wake has ended.
#[derive(Default)]
pub(crate) struct Woken<'a> {
    /// What the mutex profile records, as many times as the waits stand for.
    pub(crate) charge: Charge,
    /// Where one of them was, if that is known already.
    pub(crate) site: Option<&'static WaitSite>,
    /// Which function one of them has waited in.
    pub(crate) caller: Caller,
    /// One of those that the mutex profile records.
    cell: Option<&'a Cell>,
    /// What its `since` is now.
    since: u64,
}

impl Woken<'_> {
    /// Asks one of the woken threads to tell the record where it has waited. Called before the kernel wakes it; a thread that
    /// has gone on before, because its time was over, is not asked.
    pub(crate) fn ask(&self, record: &'static BlockRecord) {
        let Some(cell) = self.cell else { return };
        let is_there = || cell.since.load(Ordering::Acquire) == self.since;
        if is_there() {
            cell.record.set(Some(record));
            if !is_there() {
                // Another thread waits in the cell now, at another place.
                cell.record.set(None);
            }
        }
    }
}

/// How a wait has ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct WaitEnd {
    /// The tick at which another thread woke the waiter, if one did.
    pub(crate) woken: Option<u64>,
    /// The record of that, if it asks where the thread has waited.
    pub(crate) asks: Option<&'static BlockRecord>,
}

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
        Note::of_word(self.note.load(Ordering::Relaxed))
    }

    /// Takes the cell if it is free.
    fn take(&self) -> bool {
        self.address.load(Ordering::Relaxed) == FREE
            && self.address.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn goroutine(&self) -> Option<&'static Goroutine> {
        // SAFETY: null, or from a reference to a slot, which is never freed.
        unsafe { self.goroutine.load(Ordering::Relaxed).as_ref() }
    }
}

fn home_of(address: usize) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all of the address.
    let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CELLS.ilog2());
    hash as usize & !1
}

/// A waiter's cell. Plain data without a destructor, because a thread may be cancelled in its wait.
#[derive(Clone, Copy)]
pub(crate) struct SleeperCell {
    home: u16,
    distance: u16,
    /// As in the cell.
    id: u32,
    /// As in the cell.
    note: u64,
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
                        note: AtomicU64::new(UNWATCHED),
                        site: NotedSite::none(),
                        record: AtomicRef::none(),
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

    /// Enters the current thread, which is about to wait. `None` if no cell is free. Calls `found` before the wait can be seen.
    #[inline]
    pub(crate) fn enter(
        &self,
        Sleeper { address, bits, start, goroutine, note }: Sleeper,
        hints: &Hints,
        found: impl FnOnce(SleeperCell),
    ) -> Option<SleeperCell> {
        // The kernel will refuse such an address.
        if address <= FILLING || !self.is_of_this_process() {
            return None;
        }
        let home = home_of(address);
        let distance = match hints.get(home, note.is_watched) {
            Some(distance) if self.cell(home, distance).take() => distance,
            _ => self.search(home, note.is_watched, hints)?,
        };
        let cell = self.cell(home, distance);
        // The order matters: see `each_at`. A signal handler may jump out of here, and the wait is left then: the home may be
        // told of a waiter too many, and not of one too few.
        cell.bits.store(bits, Ordering::Relaxed);
        // A goroutine that was marked as ended by mistake, as can happen in a child of a raw `fork`, counts as none.
        let goroutine = goroutine.filter(|goroutine| goroutine.id() != 0);
        let id = goroutine.map_or(0, Goroutine::id) as u32;
        cell.id.store(id, Ordering::Relaxed);
        let goroutine = goroutine.map_or(core::ptr::null_mut(), |own| (&raw const *own).cast_mut());
        cell.goroutine.store(goroutine, Ordering::Relaxed);
        let word = note.word();
        cell.note.store(word, Ordering::Relaxed);
        if word != UNWATCHED {
            cell.record.set(None);
        }
        cell.since.store(start, Ordering::Release);
        let more = u32::from(note.is_watched);
        let with_this =
            |HomeSeen { watched, reach }| HomeSeen { watched: watched + more, reach: reach.with(distance) };
        let before = self.home(home).read();
        if before != with_this(before) {
            self.home(home).change(with_this);
        }
        let place = SleeperCell { home: home as u16, distance: distance as u16, id, note: word };
        found(place);
        cell.address.store(address, Ordering::Release);
        Some(place)
    }

    /// Takes a free cell that no hint leads to, and returns how far from `home` it is.
    #[cold]
    #[inline(never)]
    fn search(&self, home: usize, is_watched: bool, hints: &Hints) -> Option<usize> {
        let distance = self.take_free(home, is_watched).or_else(|| {
            self.free_abandoned();
            self.take_free(home, is_watched)
        })?;
        hints.set(home, is_watched, distance);
        Some(distance)
    }

    /// Takes a free cell, and returns how far from `home` it is. Watched waiters prefer even cells, others odd ones.
    fn take_free(&self, home: usize, is_watched: bool) -> Option<usize> {
        let first = usize::from(!is_watched);
        let preferred = (first..CELLS).step_by(2);
        let others = (1 - first..CELLS).step_by(2);
        preferred.chain(others).find(|&distance| self.cell(home, distance).take())
    }

    /// Ends the wait of the current thread in this cell. Returns the tick at which another thread woke it, or was
    /// charged for it last, if one did. Of a waiter that is not watched that is not known: wakes may have looked at the table
    /// for another one, and not since.
    ///
    /// `None` also if the process was forked since, and the table was emptied.
    #[inline]
    pub(crate) fn leave(&self, place: SleeperCell) -> Option<u64> {
        let cell = self.own(place)?;
        if place.note == UNWATCHED {
            self.leave_unwatched(cell);
            return None;
        }
        self.leave_watched(cell, place)
    }

    /// Leaves the cell of a waiter that is not watched: no thread is told how its wait has ended. So no compare-and-swap is
    /// needed: it does not matter whether a wake takes the waiter in this moment.
    #[inline(always)]
    fn leave_unwatched(&self, cell: &Cell) {
        if cell.since.load(Ordering::Relaxed) != LEFT {
            cell.since.store(LEFT, Ordering::Release);
            cell.address.store(FREE, Ordering::Release);
        }
    }

    #[cold]
    fn leave_watched(&self, cell: &Cell, place: SleeperCell) -> Option<u64> {
        let since = cell.since.swap(LEFT, Ordering::AcqRel);
        if since == LEFT {
            return None;
        }
        self.free(cell, place.home.into());
        (since & IS_WOKEN != 0 && place.note & IS_WATCHED != 0).then_some(rounded(since))
    }

    /// As [`Sleepers::leave`], at the tick `now`, for a wait that another thread has ended: if none was charged for it, and
    /// that may be because another waiter was taken for this one, the next wake at the address is charged for it. `site` says
    /// where it was.
    #[inline]
    pub(crate) fn leave_woken(
        &self,
        place: SleeperCell,
        now: u64,
        site: impl FnOnce() -> Option<&'static WaitSite>,
    ) -> WaitEnd {
        let Some(cell) = self.own(place) else { return WaitEnd::default() };
        if place.note == UNWATCHED {
            self.leave_unwatched(cell);
            return WaitEnd::default();
        }
        self.leave_woken_watched(cell, place, now, site)
    }

    #[cold]
    fn leave_woken_watched(
        &self,
        cell: &Cell,
        place: SleeperCell,
        now: u64,
        site: impl FnOnce() -> Option<&'static WaitSite>,
    ) -> WaitEnd {
        let since = cell.since.load(Ordering::Acquire);
        let waited = now.saturating_sub(since);
        let Note { weight, .. } = Note::of_word(place.note);
        if weight > 1 && since & IS_WOKEN == 0 && waited >= LEAST_SLEEP {
            cell.site.set(site());
            cell.bits.store(age(now), Ordering::Relaxed);
            let owed = rounded(waited) | IS_OWED | IS_WOKEN;
            if cell.since.compare_exchange(since, owed, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return WaitEnd::default();
            }
        }
        // Written before the kernel has woken this thread.
        let asks = cell.record.get();
        let woken = self.leave_watched(cell, place);
        WaitEnd { woken, asks: asks.filter(|_| woken.is_some()) }
    }

    /// Returns the cell of a waiter; `None` if the table was emptied since.
    #[inline(always)]
    fn own(&self, place: SleeperCell) -> Option<&Cell> {
        Some(self.cell(place.home.into(), place.distance.into()))
            .filter(|cell| cell.id.load(Ordering::Relaxed) == place.id)
    }

    /// Frees a cell that the caller has marked as left.
    fn free(&self, cell: &Cell, home: usize) {
        let is_watched = cell.note().is_watched;
        cell.address.store(FREE, Ordering::Release);
        if is_watched {
            let before =
                self.home(home).change(|seen| HomeSeen { watched: seen.watched.saturating_sub(1), ..seen });
            if before.watched <= 1 && before.reach.count() > LONG_REACH {
                self.shorten(home, before.reach);
            }
        }
    }

    /// Shortens the reach of a home without watched waiters to what its waiters need. One that enters at the same time and is
    /// not watched may not be found by wakes, for this one wait: a wake that ends it may be taken for another waiter's.
    #[cold]
    fn shorten(&self, home: usize, reach: Reach) {
        let is_used = |&distance: &usize| match self.cell(home, distance).address.load(Ordering::Relaxed) {
            FREE => false,
            FILLING => true,
            address => home_of(address) == home,
        };
        let farthest = [0, 1].into_iter().filter_map(|parity| reach.of(parity).rev().find(is_used));
        let needed = farthest.fold(Reach::LEAST, Reach::with);
        let word = |reach| HomeSeen { watched: 0, reach }.word();
        // Fails if a watched waiter has come.
        let _ = self.home(home).0.compare_exchange(
            word(reach),
            word(needed),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Frees a cell whose thread has ended, unless another thread does. `since` was read before the check for the end:
    /// if it is unchanged, no other thread has used the cell in between.
    #[cold]
    fn free_abandoned_one(&self, cell: &Cell, since: u64) {
        if cell.address.load(Ordering::Relaxed) > FILLING
            && cell.since.compare_exchange(since, LEFT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // Read now, when no other thread can free the cell and use it again.
            self.free(cell, home_of(cell.address.load(Ordering::Relaxed)));
        }
    }

    #[cold]
    fn free_abandoned(&self) {
        for Line { cell, .. } in &self.lines {
            let since = cell.since.load(Ordering::Acquire);
            // What is owed is lost: there is no room for it.
            if since & IS_OWED != 0 || since != LEFT && cell.is_abandoned() {
                self.free_abandoned_one(cell, since);
            }
        }
    }

    /// Whether a watched waiter may be at `address`.
    #[inline]
    pub(crate) fn are_watched(&self, address: usize) -> bool {
        self.home(home_of(address)).read().watched != 0
    }

    /// Takes, at the tick `now`, at most `count` of the threads that wait at `address` with a bit in common with
    /// `bits`, the longest waiting first. Calls `unblock` with the goroutine of each and the tick at which it began to wait.
    pub(crate) fn wake<'a>(
        &'a self,
        address: usize,
        count: u32,
        bits: u32,
        now: u64,
        unblock: impl Fn(&'static Goroutine, u64),
    ) -> Woken<'a> {
        let home = home_of(address);
        let now = rounded(now);
        let mut woken = Woken { since: now | IS_WOKEN, ..Woken::default() };
        let mut take = |cell: &'a Cell, since| {
            let (goroutine, note) = (cell.goroutine(), cell.note());
            let take_it =
                || cell.since.compare_exchange(since, now | IS_WOKEN, Ordering::AcqRel, Ordering::Relaxed);
            if take_it().is_ok() {
                woken.charge.add(note.weight, 1, now.saturating_sub(since));
                if note.weight != 0 {
                    (woken.cell, woken.caller) = (Some(cell), note.caller);
                }
                if let Some(goroutine) = goroutine {
                    unblock(goroutine, since);
                }
            }
        };
        let mut are_owed = false;
        // There are no more waiters than the reach permits.
        if count >= self.home(home).read().reach.count() {
            are_owed = self.each_waiting(home, address, bits, now, &mut take);
        } else {
            // A waiter that another thread has taken first counts too, because it was woken.
            for _ in 0..count {
                let (mut longest, mut least) = (None, u64::MAX);
                are_owed = self.each_waiting(home, address, bits, now, |cell, since| {
                    if since < least {
                        (longest, least) = (Some(cell), since);
                    }
                });
                let Some(cell) = longest else { break };
                take(cell, least);
            }
        }
        if are_owed {
            self.take_owed(home, address, now, |note, ticks, site| {
                woken.charge.add(note.weight, 1, ticks);
                if woken.cell.is_none() {
                    (woken.site, woken.caller) = (site, note.caller);
                }
            });
        }
        woken
    }

    /// Calls `pay` with the note, the ticks and the site of each wait at the address that is owed, and frees its cell.
    #[cold]
    fn take_owed(
        &self,
        home: usize,
        address: usize,
        now: u64,
        mut pay: impl FnMut(Note, u64, Option<&'static WaitSite>),
    ) {
        self.each_at(home, address, now, |cell, since| {
            if since & IS_OWED != 0
                && cell.since.compare_exchange(since, LEFT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                // Read now, when no other thread can free the cell and use it again. Before this read it may have been
                // used for another address, where a wait of the same length is owed.
                let owed_at = cell.address.load(Ordering::Relaxed);
                if owed_at == address {
                    pay(cell.note(), rounded(since & !IS_OWED), cell.site.get());
                }
                self.free(cell, home_of(owed_at));
            }
        });
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
        self.each_at(home_of(address), address, now, |cell, since| {
            let (goroutine, weight) = (cell.goroutine(), cell.note().weight);
            let charge_until =
                || cell.since.compare_exchange(since, now | IS_WOKEN, Ordering::AcqRel, Ordering::Relaxed);
            if since & IS_OWED == 0 && charge_until().is_ok() {
                charge.add(weight, u64::from(since & IS_WOKEN == 0), now - rounded(since));
                if let Some(goroutine) = goroutine {
                    told(goroutine);
                }
            }
        });
        charge
    }

    /// Calls `visit` with the waiters at an address since before `now`, each with the tick at which it began. Returns whether
    /// waits are owed there.
    #[inline(always)]
    fn each_waiting<'a>(
        &'a self,
        home: usize,
        address: usize,
        bits: u32,
        now: u64,
        mut visit: impl FnMut(&'a Cell, u64),
    ) -> bool {
        let mut are_owed = false;
        self.each_at(home, address, now, |cell, since| {
            are_owed |= since & IS_OWED != 0;
            if since & IS_WOKEN == 0 && cell.bits.load(Ordering::Relaxed) & bits != 0 {
                visit(cell, since);
            }
        });
        are_owed
    }

    /// Calls `visit` with the cells of the waiters at an address since before `now`, and their `since`, which may have the
    /// bit [`IS_OWED`]. A loop and no iterator: for 30 idle workers the pairs that an iterator passes on took half of the time.
    #[inline(always)]
    fn each_at<'a>(&'a self, home: usize, address: usize, now: u64, mut visit: impl FnMut(&'a Cell, u64)) {
        if !self.is_of_this_process() {
            return;
        }
        for distance in self.home(home).read().reach.distances() {
            let cell = self.cell(home, distance);
            // `since` is read first. Then the address and the bits belong to the same wait or to a later one; if to a
            // later one, `since` has changed, and the compare-and-swap fails.
            let since = cell.since.load(Ordering::Acquire);
            let is_owed = since & IS_OWED != 0;
            // At any address of this home, because the wakes there look at the table for it.
            if is_owed && age(now).wrapping_sub(cell.bits.load(Ordering::Relaxed)) > age(OWED_FOR) {
                self.free_abandoned_one(cell, since);
                continue;
            }
            if since == LEFT
                || !is_owed && rounded(since) > now
                || cell.address.load(Ordering::Acquire) != address
            {
                continue;
            }
            if !is_owed && now - rounded(since) >= OLD && cell.is_abandoned() {
                self.free_abandoned_one(cell, since);
                continue;
            }
            visit(cell, since);
        }
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

/// As a [`Sleeper`], in one line.
#[cfg(test)]
fn sleeper(
    address: usize,
    bits: u32,
    start: u64,
    goroutine: Option<&'static Goroutine>,
    note: Note,
) -> Sleeper {
    Sleeper { address, bits, start, goroutine, note }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
