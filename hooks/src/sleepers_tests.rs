//! Tests without races; `loom_tests` has those.

use rtprof_runtime::goroutine;

use super::*;

const ANY: u32 = u32::MAX;
/// Chooses the charge.
const CHOSEN: Note = Note { weight: 1, site: None };

fn wake(sleepers: &Sleepers, address: usize, count: u32, bits: u32, now: u64) -> (u64, u64) {
    let (charge, _) = sleepers.wake(address, count, bits, now, |_, _| unreachable!("no goroutines here"));
    (charge.waits, charge.ticks)
}

#[test]
fn who_waits_longest_is_woken_first() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |start| sleepers.enter(64, ANY, start, None, CHOSEN).expect("there is room");
    let (late, early, middle) = (enter(30), enter(10), enter(20));
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (1, 90));
    assert_eq!(wake(&sleepers, 128, 9, ANY, 100), (0, 0), "another address");
    assert_eq!(wake(&sleepers, 64, 9, ANY, 200), (2, 170 + 180));
    assert_eq!(wake(&sleepers, 64, 9, ANY, 300), (0, 0), "each once");
    let leave = |place| sleepers.leave(place);
    assert_eq!([early, middle, late].map(leave), [Some(100), Some(200), Some(200)]);
    assert!(!sleepers.are_any(64));
}

#[test]
fn a_lock_charges_all_for_what_is_new() {
    let sleepers = Box::new(Sleepers::new());
    let charge = |address, now| {
        let charge = sleepers.charge(address, now, |_| unreachable!("no goroutines here"));
        (charge.waits, charge.ticks)
    };
    let enter = |start| sleepers.enter(64, ANY, start, None, CHOSEN).expect("there is room");
    let (first, second) = (enter(10), enter(20));
    assert_eq!(charge(64, 100), (2, 90 + 80));
    let third = enter(120);
    assert_eq!(charge(128, 200), (0, 0), "another address");
    assert_eq!(charge(64, 200), (1, 100 + 100 + 80));
    assert_eq!(sleepers.leave(second), Some(200));
    assert_eq!(charge(64, 250), (0, 50 + 50));
    assert_eq!([first, third].map(|place| sleepers.leave(place)), [Some(250), Some(250)]);
    assert_eq!(charge(64, 300), (0, 0));
}

/// A charge is the waiter's choice: a wait stands for several, or for none.
#[test]
fn waits_count_as_they_have_chosen() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |start, weight| {
        sleepers.enter(64, ANY, start, None, Note { weight, site: None }).expect("there is room")
    };
    let places = [enter(10, 0), enter(20, 7), enter(30, u64::MAX)];
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (0, 0), "it is woken, and no charge is noted");
    let charge = sleepers.charge(64, 110, |_| unreachable!("no goroutines here"));
    assert_eq!((charge.waits, charge.ticks), (u64::MAX, u64::MAX), "sums do not wrap");
    assert_eq!(sleepers.leave(places[2]), Some(110));
    let charge = sleepers.charge(64, 130, |_| unreachable!("no goroutines here"));
    assert_eq!((charge.waits, charge.ticks), (0, 7 * 20));
    assert_eq!(sleepers.leave(places[0]), Some(130));
    assert_eq!(sleepers.leave(places[1]), Some(130));
}

#[test]
fn bits_choose() {
    let sleepers = Box::new(Sleepers::new());
    let reader = sleepers.enter(64, 0b01, 10, None, CHOSEN).expect("there is room");
    let writer = sleepers.enter(64, 0b10, 20, None, CHOSEN).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, 0b10, 100), (1, 80));
    assert_eq!((sleepers.leave(reader), sleepers.leave(writer)), (None, Some(100)));
}

#[test]
fn a_wait_without_room_is_none() {
    let sleepers = Box::new(Sleepers::new());
    let places: Vec<_> = (1..=CELLS)
        .map(|at| sleepers.enter(at * 64, ANY, 10, None, CHOSEN).expect("there is room"))
        .collect();
    assert!(sleepers.enter(64, ANY, 10, None, CHOSEN).is_none());
    assert_eq!(wake(&sleepers, CELLS * 64, 9, ANY, 20), (1, 10), "however far it is from its home");
    assert_eq!(places.into_iter().filter_map(|place| sleepers.leave(place)).count(), 1);
    assert!((1..=CELLS).all(|at| !sleepers.are_any(at * 64)));
}

/// A thread waits at the address, and ends without leaving.
fn abandon(sleepers: &Sleepers, address: usize) {
    let enters = || {
        let own = goroutine::current();
        assert!(own.is_some(), "the registry is open");
        sleepers.enter(address, ANY, 10, own, CHOSEN).expect("there is room");
    };
    std::thread::scope(|scope| scope.spawn(enters).join().unwrap());
}

#[test]
fn who_has_ended_waits_no_more() {
    rtprof_profiler::init::open();
    let sleepers = Box::new(Sleepers::new());
    abandon(&sleepers, 64);
    let other = sleepers.enter(64, ANY, 20, None, CHOSEN).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (1, 80), "who waits is woken, not who waited before");
    assert_eq!(sleepers.leave(other), Some(100));
    assert!(!sleepers.are_any(64));

    abandon(&sleepers, 64);
    let charge = sleepers.charge(64, 100, |_| unreachable!("it has ended"));
    assert_eq!((charge.waits, charge.ticks, sleepers.are_any(64)), (0, 0, false));

    (1..=CELLS).for_each(|at| abandon(&sleepers, at * 64));
    assert!(
        (1..=CELLS).all(|at| sleepers.enter(at * 64, ANY, 10, None, CHOSEN).is_some()),
        "their room is free"
    );
}

#[test]
fn another_process_has_other_threads() {
    let sleepers = Box::new(Sleepers::new());
    let _left = sleepers.enter(64, ANY, 10, None, CHOSEN);
    // As in a child, however it was made.
    sleepers.process.store(process::number() + 1, Ordering::Relaxed);
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (0, 0));
    assert!(!sleepers.are_any(64));
    let own = sleepers.enter(64, ANY, 10, None, CHOSEN).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (1, 90));
    assert_eq!(sleepers.leave(own), Some(100));
}

/// A thread that was forked in its wait comes back from it.
#[test]
fn who_was_forked_has_no_place() {
    let sleepers = Box::new(Sleepers::new());
    let place = sleepers.enter(64, ANY, 10, None, CHOSEN).expect("there is room");
    sleepers.forked();
    assert_eq!(sleepers.leave(place), None);
    // In the same cell, perhaps.
    rtprof_profiler::init::open();
    let other = sleepers.enter(64, ANY, 20, goroutine::current(), CHOSEN).expect("there is room");
    assert_eq!(sleepers.leave(place), None);
    let (charge, _) = sleepers.wake(64, 1, ANY, 100, |_, since| assert_eq!(since, 20));
    assert_eq!((charge.waits, charge.ticks), (1, 80));
    assert_eq!(sleepers.leave(other), Some(100));
    assert!(!sleepers.are_any(64));
}
