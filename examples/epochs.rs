//! Publishes a table of routes again and again while other threads look in it. An old table is freed only when no reader can
//! see it any more: epoch reclamation, here by the crate crossbeam-epoch. The program tells the profiler when it takes stock
//! and when it frees, and so its heap profile shows what was alive, though the memory of the dead is freed later.
//!
//! ```sh
//! cargo run --release --example epochs
//! cargo run --release --example epochs -- --plain    # without telling the profiler
//! cargo run --release --example epochs -- --events   # each malloc and free of the last round, on standard error
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared, pin};
use rtprof::collector;
use rtprof::pprof::heap_top;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

const ROUNDS: usize = 5;

const USAGE: &str = "usage: epochs [--plain | --events]";

/// The table that readers see.
static CURRENT: Atomic<Table> = Atomic::null();

static ENDS: AtomicBool = AtomicBool::new(false);

fn main() -> Result<(), Box<dyn Error>> {
    let (mut is_plain, mut shows_events) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--plain" => is_plain = true,
            "--events" => shows_events = true,
            _ => return Err(USAGE.into()),
        }
    }
    // Every allocation is sampled, so that the numbers below are exact.
    rtprof::set_mem_profile_rate(1);
    let readers: Vec<_> = (0..2).map(|_| std::thread::spawn(read)).collect();

    println!("round    alive at the cut    not yet freed then    the heap profile says");
    for round in 1..=ROUNDS {
        if shows_events && round == ROUNDS {
            rtprof::set_alloc_free_trace(true);
        }
        let [alive, not_freed, profile] = if is_plain { plain_round(round) } else { round_with_cuts(round) };
        rtprof::set_alloc_free_trace(false);
        println!("{round:5}    {alive:16}    {not_freed:18}    {profile:21}");
    }

    ENDS.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().expect("the reader panicked");
    }
    Ok(())
}

/// Publishes a table, takes stock, and frees the old table later. Returns the bytes of tables that were alive at that moment,
/// those of all that were not freed, and those in use by the profile.
fn round_with_cuts(round: usize) -> [usize; 3] {
    let guard = pin();
    let old = publish(round, &guard);
    let (alive, dead) = (current_bytes(&guard), bytes_of(old));
    // The cut: the old table is dead from here on, though readers may still be in it.
    collector::cycle();
    let old = old.as_raw();
    drop(guard);
    wait_for_readers();
    // What is freed in a sweep counts as freed at the cut.
    collector::sweep(|sweep| {
        free(old);
        sweep.swept(dead);
    });
    // From here on profiles show the state at the cut.
    collector::post_sweep();
    [alive, alive + dead, in_use_by_profile()]
}

/// The same without a word to the profiler, whose profile is of the moment at which it is asked for.
fn plain_round(round: usize) -> [usize; 3] {
    let guard = pin();
    let old = publish(round, &guard);
    let (alive, dead) = (current_bytes(&guard), bytes_of(old));
    let in_use = in_use_by_profile();
    let old = old.as_raw();
    drop(guard);
    wait_for_readers();
    free(old);
    [alive, alive + dead, in_use]
}

/// Routes of a service: names with a target for each.
struct Table(Vec<(String, u32)>);

impl Table {
    // Its name stands in the profile.
    #[inline(never)]
    fn build(round: usize) -> Box<Self> {
        let routes = (0..round * 1000).map(|number| (format!("/v{round}/route/{number}"), number as u32));
        Box::new(Self(routes.collect()))
    }

    fn bytes(&self) -> usize {
        let names: usize = self.0.iter().map(|(name, _)| name.capacity()).sum();
        size_of::<Self>() + self.0.capacity() * size_of::<(String, u32)>() + names
    }
}

/// Makes a new table the current one, and returns the old one, null at first.
fn publish(round: usize, guard: &Guard) -> Shared<'_, Table> {
    CURRENT.swap(Owned::from(Table::build(round)), Ordering::AcqRel, guard)
}

fn current_bytes(guard: &Guard) -> usize {
    bytes_of(CURRENT.load(Ordering::Acquire, guard))
}

fn bytes_of(table: Shared<'_, Table>) -> usize {
    // SAFETY: a table that was current while a guard exists is not freed before that guard is dropped, and is never changed.
    unsafe { table.as_ref() }.map_or(0, Table::bytes)
}

/// Waits until all guards that exist now are dropped.
fn wait_for_readers() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    IS_OVER.store(false, Ordering::Relaxed);
    pin().defer(|| IS_OVER.store(true, Ordering::Release));
    while !IS_OVER.load(Ordering::Acquire) {
        // Each flush may advance the epoch by one.
        pin().flush();
        std::thread::yield_now();
    }
}

/// Frees a table that was current, if it is not null, after [`wait_for_readers`].
fn free(table: *const Table) {
    if !table.is_null() {
        // SAFETY: `publish` took it out of `CURRENT`, where it was the only pointer to this box; all guards that may have seen
        // it there are gone, and each round frees only its own.
        drop(unsafe { Box::from_raw(table.cast_mut()) });
    }
}

/// Returns the bytes in use that were allocated in [`Table::build`].
fn in_use_by_profile() -> usize {
    let all = heap_top(usize::MAX).into_iter();
    let built = all.filter(|entry| entry.function == "epochs::Table::build");
    built.map(|entry| entry.cumulative_inuse_space as usize).sum()
}

/// Looks up routes until the program ends.
fn read() {
    let mut found = 0_u64;
    while !ENDS.load(Ordering::Relaxed) {
        let guard = pin();
        let table = CURRENT.load(Ordering::Acquire, &guard);
        // SAFETY: it is not freed while the guard exists, and is never changed.
        if let Some(table) = unsafe { table.as_ref() } {
            found +=
                table.0.iter().filter(|(name, target)| name.ends_with('7') && *target > 7).count() as u64;
        }
    }
    std::hint::black_box(found);
}
