//! Who waits at which address, since when: so that the thread that wakes one is charged for the wait, and the wait ends when
//! it was woken and not when the kernel got round to running it.
//!
//! ```text
//!   home of an address           cells
//!   ┌──────────────────┐         ┌─────────┬───────┬──────┬───────────┐
//!   │ waiters │ reach  │ ──────► │ address │ since │ bits │ goroutine │  at the home's number, or up to `reach` further on
//!   └──────────────────┘         └─────────┴───────┴──────┴───────────┘
//! ```
//!
//! A thread takes the first free cell from its address's home on, and has the home know how far that is. One that wakes reads
//! the home: mostly nobody waits, and that is all. Else it looks at the cells within reach and takes the waiters that have
//! waited longest, as the kernel does. It takes one by a compare-and-swap of `since`, from the tick at which the wait began to
//! the tick at which it ends, with the lowest bit set; whoever succeeds is charged for the wait.
//!
//! A wait that finds no cell free is a wait that ends by itself.
//!
//! # Locks
//! None.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rtprof_profiler::goroutine::Goroutine;

use crate::account::Charge;

const CELLS: usize = 1 << 12;

/// In place of an address: the cell is free.
const FREE: usize = 0;
/// The cell is being filled. No futex lies at an odd address.
const FILLING: usize = 1;

/// In `since`: the wait is over.
const IS_WOKEN: u64 = 1;

struct Cell {
    address: AtomicUsize,
    since: AtomicU64,
    goroutine: AtomicPtr<Goroutine>,
    bits: AtomicU32,
}

/// How many wait at the addresses of one home, and how far from it the furthest cell is that one of them had: two halves of a
/// word.
struct Home(AtomicU64);

static ALL: [Cell; CELLS] = [const {
    Cell {
        address: AtomicUsize::new(FREE),
        since: AtomicU64::new(0),
        goroutine: AtomicPtr::new(core::ptr::null_mut()),
        bits: AtomicU32::new(0),
    }
}; CELLS];
static HOMES: [Home; CELLS] = [const { Home(AtomicU64::new(0)) }; CELLS];

/// Whether any cell was ever used.
static IS_USED: AtomicU32 = AtomicU32::new(0);

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

fn home_of(address: usize) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all of the address.
    ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CELLS.ilog2())) as usize
}

fn cell_at(home: usize, distance: usize) -> &'static Cell {
    &ALL[(home + distance) % CELLS]
}

/// A waiter's place. Plain data: a thread may be cancelled in its wait.
#[derive(Clone, Copy)]
pub(super) struct Place {
    home: usize,
    distance: usize,
}

/// The current thread is about to wait at `address`, since `start`. `None` if there are too many who do.
pub(super) fn enter(
    address: usize,
    bits: u32,
    start: u64,
    goroutine: Option<&'static Goroutine>,
) -> Option<Place> {
    let home = home_of(address);
    if IS_USED.load(Ordering::Relaxed) == 0 {
        IS_USED.store(1, Ordering::Relaxed);
    }
    let is_taken = |cell: &Cell| {
        cell.address.load(Ordering::Relaxed) == FREE
            && cell.address.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let distance = (0..CELLS).find(|&distance| is_taken(cell_at(home, distance)))?;
    let cell = cell_at(home, distance);
    // Release: who reads any of this of a new waiter, and then compares `since`, finds that the old one is gone.
    cell.since.store(start & !IS_WOKEN, Ordering::Release);
    cell.bits.store(bits, Ordering::Release);
    cell.goroutine.store(
        goroutine.map_or(core::ptr::null_mut(), |own| (&raw const *own).cast_mut()),
        Ordering::Release,
    );
    cell.address.store(address, Ordering::Release);
    HOMES[home].change(|waiters, reach| (waiters + 1, reach.max(distance as u32)));
    Some(Place { home, distance })
}

/// The current thread, which has this place, waits no more. Returns when it was woken, if by somebody who has said so.
pub(super) fn leave(place: Place) -> Option<u64> {
    let cell = cell_at(place.home, place.distance);
    let since = cell.since.swap(IS_WOKEN, Ordering::AcqRel);
    cell.address.store(FREE, Ordering::Release);
    HOMES[place.home].change(|waiters, reach| match waiters.saturating_sub(1) {
        0 => (0, 0),
        more => (more, reach),
    });
    (since & IS_WOKEN != 0).then_some(since & !IS_WOKEN)
}

/// Whether any thread may be waiting at `address`.
#[inline]
pub(super) fn are_any(address: usize) -> bool {
    HOMES[home_of(address)].read().0 != 0
}

/// At most `count` of those who wait at `address`, and have a bit in common with `bits`, are woken at `now`: those who have
/// waited longest. Calls `unblock` with the goroutine of each, and with the tick at which it began to wait.
pub(super) fn wake(
    address: usize,
    count: u32,
    bits: u32,
    now: u64,
    unblock: impl Fn(&'static Goroutine, u64),
) -> Charge {
    let home = home_of(address);
    let now = now & !IS_WOKEN;
    let mut charge = Charge::default();
    while charge.waits < u64::from(count) {
        let (waiters, reach) = HOMES[home].read();
        if waiters == 0 {
            break;
        }
        let mut longest: Option<(&Cell, u64)> = None;
        for distance in 0..=reach as usize {
            let cell = cell_at(home, distance);
            if cell.address.load(Ordering::Acquire) != address {
                continue;
            }
            let since = cell.since.load(Ordering::Acquire);
            let is_meant = since & IS_WOKEN == 0 && cell.bits.load(Ordering::Acquire) & bits != 0;
            if is_meant && longest.is_none_or(|(_, other)| since < other) {
                longest = Some((cell, since));
            }
        }
        let Some((cell, since)) = longest else { break };
        // SAFETY: null, or from a reference to a slot, which is never freed.
        let goroutine = unsafe { cell.goroutine.load(Ordering::Acquire).as_ref() };
        let woken = cell.since.compare_exchange(since, now | IS_WOKEN, Ordering::AcqRel, Ordering::Relaxed);
        if woken.is_ok() {
            charge.waits += 1;
            charge.ticks += now.saturating_sub(since);
            if let Some(goroutine) = goroutine {
                unblock(goroutine, since);
            }
        }
    }
    charge
}

/// This is a forked child, whose only thread does not wait.
pub(super) fn forked() {
    if IS_USED.swap(0, Ordering::Relaxed) != 0 {
        for (cell, home) in ALL.iter().zip(&HOMES) {
            cell.address.store(FREE, Ordering::Relaxed);
            home.0.store(0, Ordering::Relaxed);
        }
    }
}
