//! Models of concurrent waiters and wakers.

use super::*;
use loom::sync::Arc;

impl Sleepers {
    fn modelled() -> Self {
        let line = || Line {
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
        };
        Self { lines: core::array::from_fn(|_| line()), process: AtomicU32::new(UNUSED) }
    }
}

/// How often a model switches between threads that could go on.
fn bound() -> usize {
    if std::env::var_os("RTPROF_LOOM_ALL").is_some() { 3 } else { 2 }
}

/// Chooses the charge.
const CHOSEN: Note = Note { is_watched: true, weight: 1, caller: Caller::UNKNOWN };

/// Another address, with the same home.
const OTHER: usize = 192;

/// A thread waits at one address and then at another, in the same cell. A thread that is charged for a wait has
/// unblocked that one, and no wait at another address.
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
            loom::thread::spawn(move || sleepers.wake(64, 1, 1, 100, |_, _| ()).charge)
        };
        let wait = |(address, start): (usize, u64)| {
            let place = sleepers
                .enter(sleeper(address, 1, start, None, CHOSEN), &Hints::new(), |_| ())
                .expect("nobody else waits");
            sleepers.leave(place).map(|woken| (address, woken))
        };
        let told: Vec<_> = [(64, 10), (OTHER, 20), (64, 30)].into_iter().filter_map(wait).collect();
        let charge = waker.join().unwrap();
        assert_eq!(told.len() as u64, charge.waits, "{told:?} and {charge:?}");
        assert!(told.iter().all(|&told| told == (64, 100)), "{told:?}");
        assert!([0, 70, 90].contains(&charge.ticks), "{charge:?}");
        assert!(!sleepers.are_watched(64), "all have left");
    });
}

/// The sum that unlocks are charged equals the sum that the waits report.
#[test]
fn loom_what_is_charged_was_told() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound());
    builder.check(|| {
        let sleepers = Arc::new(Sleepers::modelled());
        let unlocks = {
            let sleepers = sleepers.clone();
            loom::thread::spawn(move || [100, 150].map(|now| sleepers.charge(64, now, |_| ())))
        };
        let wait = |(address, start): (usize, u64)| {
            let place = sleepers
                .enter(sleeper(address, 1, start, None, CHOSEN), &Hints::new(), |_| ())
                .expect("nobody else waits");
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

/// A thread has ended in its wait, and two threads find its cell: one wakes, the other wakes and then waits, perhaps in
/// that cell. The cell is freed once, the abandoned wait is charged to no thread, and the other wait is charged as
/// usual.
#[test]
fn loom_what_was_abandoned_is_freed_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let sleepers = Arc::new(Sleepers::modelled());
        let id: &'static _ = Box::leak(Box::new(loom::sync::atomic::AtomicU64::new(7)));
        let goroutine: &'static _ = Box::leak(Box::new(Goroutine::with_id(id)));
        sleepers
            .enter(sleeper(64, 1, 10, Some(goroutine), CHOSEN), &Hints::new(), |_| ())
            .expect("nobody else waits");
        id.store(8, Ordering::Relaxed);
        let wake =
            |sleepers: &Sleepers, now| sleepers.wake(64, 1, 1, now, |_, _| panic!("it has ended")).charge;
        let waker = {
            let sleepers = sleepers.clone();
            loom::thread::spawn(move || wake(&sleepers, 100))
        };
        assert_eq!(wake(&sleepers, 15), Charge::default());
        let place = sleepers
            .enter(sleeper(64, 1, 20, None, CHOSEN), &Hints::new(), |_| ())
            .expect("there are two cells");
        let woken = sleepers.leave(place);
        let charge = waker.join().unwrap();
        assert_eq!(woken, (charge.waits == 1).then_some(100), "{charge:?}");
        assert_eq!(charge.ticks, charge.waits * 80, "{charge:?}");
        assert_eq!(sleepers.home(home_of(64)).read().watched, 0, "each was counted once");
    });
}

/// A watched waiter and one that is not, and two wakes of one waiter each. However they overlap, the watched wait is charged
/// at most once, and it is charged when both have been woken by wakes that saw it.
#[test]
fn loom_what_is_owed_is_charged_once() {
    const TWO: Note = Note { is_watched: true, weight: 2, caller: Caller::UNKNOWN };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound());
    builder.check(|| {
        let sleepers = Arc::new(Sleepers::modelled());
        let other = sleepers
            .enter(sleeper(64, 1, 10, None, Note::default()), &Hints::new(), |_| ())
            .expect("there are two cells");
        let watched = sleepers
            .enter(sleeper(64, 1, 20, None, TWO), &Hints::new(), |_| ())
            .expect("there are two cells");
        let waker = {
            let sleepers = sleepers.clone();
            loom::thread::spawn(move || sleepers.wake(64, 1, 1, 100, |_, _| ()).charge)
        };
        sleepers.leave(other);
        // As if it had run at the tick 90.
        let told = sleepers.leave_woken(watched, 90, || None).woken;
        let first = waker.join().unwrap();
        let second = sleepers.wake(64, 1, 1, 200, |_, _| ()).charge;
        assert_eq!(first.waits + second.waits, 2, "{told:?}, {first:?}, {second:?}");
        let ticks = 2 * if told.is_some() { 80 } else { 70 };
        assert_eq!(first.ticks + second.ticks, ticks, "{told:?}, {first:?}, {second:?}");
        assert!(!sleepers.are_watched(64));
    });
}
