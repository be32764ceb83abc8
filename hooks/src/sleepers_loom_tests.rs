//! Waiters and wakers at one time.

use super::*;
use loom::sync::Arc;

impl Sleepers {
    fn modelled() -> Self {
        let cell = || Cell {
            address: AtomicUsize::new(FREE),
            since: AtomicU64::new(0),
            goroutine: AtomicPtr::new(core::ptr::null_mut()),
            bits: AtomicU32::new(0),
        };
        Self {
            cells: core::array::from_fn(|_| cell()),
            homes: core::array::from_fn(|_| Home(AtomicU64::new(0))),
            is_used: AtomicU32::new(0),
        }
    }
}

/// Another address, with the same home.
const OTHER: usize = 192;

/// A thread waits at one address and then at another, in the same cell. Whoever was charged for a wait has told that one, and
/// no wait at another address.
#[test]
fn loom_who_is_charged_has_told() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        assert_eq!(home_of(OTHER), home_of(64));
        let sleepers = Arc::new(Sleepers::modelled());
        // The waker is a spawned thread: loom would never run the main one between two steps of another.
        let waker = {
            let sleepers = sleepers.clone();
            loom::thread::spawn(move || sleepers.wake(64, 1, 1, 100, |_, _| ()))
        };
        let wait = |(address, start): (usize, u64)| {
            let place = sleepers.enter(address, 1, start, None).expect("nobody else waits");
            sleepers.leave(place).map(|woken| (address, woken))
        };
        let told: Vec<_> = [(64, 10), (OTHER, 20), (64, 30)].into_iter().filter_map(wait).collect();
        let charge = waker.join().unwrap();
        assert_eq!(told.len() as u64, charge.waits, "{told:?} and {charge:?}");
        assert!(told.iter().all(|&told| told == (64, 100)), "{told:?}");
        assert!([0, 70, 90].contains(&charge.ticks), "{charge:?}");
        assert!(!sleepers.are_any(64), "all have left");
    });
}

/// As above, for unlocks: what they are charged together is what the waits have told.
#[test]
fn loom_what_is_charged_was_told() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let sleepers = Arc::new(Sleepers::modelled());
        let unlocks = {
            let sleepers = sleepers.clone();
            loom::thread::spawn(move || [100, 150].map(|now| sleepers.charge(64, now, |_| ())))
        };
        let wait = |(address, start): (usize, u64)| {
            let place = sleepers.enter(address, 1, start, None).expect("nobody else waits");
            let charged = sleepers.leave(place)?;
            assert_eq!(address, 64, "charged for another lock");
            Some(charged - start)
        };
        let told: Vec<_> = [(64, 10), (OTHER, 20), (64, 30)].into_iter().filter_map(wait).collect();
        let charges = unlocks.join().unwrap();
        let waits: u64 = charges.iter().map(|charge| charge.waits).sum();
        let ticks: u64 = charges.iter().map(|charge| charge.ticks).sum();
        assert_eq!((waits, ticks), (told.len() as u64, told.iter().sum()), "{told:?} and {charges:?}");
    });
}
