//! Tests without races; `loom_tests` has those.

use rtprof_runtime::goroutine;

use super::*;

const ANY: u32 = u32::MAX;
/// Chooses the charge.
const CHOSEN: Note = Note { is_watched: true, weight: 1, caller: Caller::UNKNOWN };
/// A waiter that is not watched.
const OTHER: Note = Note { is_watched: false, weight: 0, caller: Caller::UNKNOWN };

fn wake(sleepers: &Sleepers, address: usize, count: u32, bits: u32, now: u64) -> (u64, u64) {
    let charge = sleepers.wake(address, count, bits, now, |_, _| unreachable!("no goroutines here")).charge;
    (charge.waits, charge.ticks)
}

#[test]
fn who_waits_longest_is_woken_first() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |start| {
        sleepers.enter(sleeper(64, ANY, start, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room")
    };
    let (late, early, middle) = (enter(30), enter(10), enter(20));
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (1, 90));
    assert_eq!(wake(&sleepers, 128, 9, ANY, 100), (0, 0), "another address");
    assert_eq!(wake(&sleepers, 64, 9, ANY, 200), (2, 170 + 180));
    assert_eq!(wake(&sleepers, 64, 9, ANY, 300), (0, 0), "each once");
    let leave = |place| sleepers.leave(place);
    assert_eq!([early, middle, late].map(leave), [Some(100), Some(200), Some(200)]);
    assert!(!sleepers.are_watched(64));
}

#[test]
fn a_lock_charges_all_for_what_is_new() {
    let sleepers = Box::new(Sleepers::new());
    let charge = |address, now| {
        let charge = sleepers.charge(address, now, |_| unreachable!("no goroutines here"));
        (charge.waits, charge.ticks)
    };
    let enter = |start| {
        sleepers.enter(sleeper(64, ANY, start, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room")
    };
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
        let note = Note { is_watched: true, weight, caller: Caller::UNKNOWN };
        sleepers.enter(sleeper(64, ANY, start, None, note), &Hints::new(), |_| ()).expect("there is room")
    };
    const MOST: u64 = u32::MAX as u64;
    let places = [enter(10, 0), enter(20, 7), enter(30, MOST)];
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (0, 0), "it is woken, and no charge is noted");
    let charge = sleepers.charge(64, 110, |_| unreachable!("no goroutines here"));
    assert_eq!((charge.waits, charge.ticks), (MOST + 7, MOST * 80 + 7 * 90));
    assert_eq!(sleepers.leave(places[2]), Some(110));
    let charge = sleepers.charge(64, 130, |_| unreachable!("no goroutines here"));
    assert_eq!((charge.waits, charge.ticks), (0, 7 * 20));
    let late = 1 << 62;
    let charge = sleepers.charge(64, late, |_| unreachable!("no goroutines here"));
    assert_eq!(charge.ticks, u64::MAX, "sums do not wrap");
    assert_eq!(sleepers.leave(places[0]), Some(late));
    assert_eq!(sleepers.leave(places[1]), Some(late));
}

#[test]
fn bits_choose() {
    let sleepers = Box::new(Sleepers::new());
    let reader =
        sleepers.enter(sleeper(64, 0b01, 10, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    let writer =
        sleepers.enter(sleeper(64, 0b10, 20, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, 0b10, 100), (1, 80));
    assert_eq!((sleepers.leave(reader), sleepers.leave(writer)), (None, Some(100)));
}

#[test]
fn a_wait_without_room_is_none() {
    let sleepers = Box::new(Sleepers::new());
    let places: Vec<_> = (1..=CELLS)
        .map(|at| {
            sleepers
                .enter(sleeper(at * 64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ())
                .expect("there is room")
        })
        .collect();
    assert!(sleepers.enter(sleeper(64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ()).is_none());
    assert_eq!(wake(&sleepers, CELLS * 64, 9, ANY, 20), (1, 10), "however far it is from its home");
    assert_eq!(places.into_iter().filter_map(|place| sleepers.leave(place)).count(), 1);
    assert!((1..=CELLS).all(|at| !sleepers.are_watched(at * 64)));
}

/// A thread waits at the address, and ends without leaving.
fn abandon(sleepers: &Sleepers, address: usize) {
    let enters = || {
        let own = goroutine::current();
        assert!(own.is_some(), "the registry is open");
        sleepers.enter(sleeper(address, ANY, 10, own, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    };
    std::thread::scope(|scope| scope.spawn(enters).join().unwrap());
}

#[test]
fn who_has_ended_waits_no_more() {
    rtprof_profiler::init::open();
    let sleepers = Box::new(Sleepers::new());
    abandon(&sleepers, 64);
    let now = 10 + OLD;
    let other =
        sleepers.enter(sleeper(64, ANY, 20, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, ANY, now), (1, now - 20), "who waits is woken, not who waited before");
    assert_eq!(sleepers.leave(other), Some(now));
    assert!(!sleepers.are_watched(64));

    abandon(&sleepers, 64);
    let charge = sleepers.charge(64, now, |_| unreachable!("it has ended"));
    assert_eq!((charge.waits, charge.ticks, sleepers.are_watched(64)), (0, 0, false));

    (1..=CELLS).for_each(|at| abandon(&sleepers, at * 64));
    assert!(
        (1..=CELLS).all(|at| sleepers
            .enter(sleeper(at * 64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ())
            .is_some()),
        "their room is free"
    );
}

#[test]
fn another_process_has_other_threads() {
    let sleepers = Box::new(Sleepers::new());
    let _left = sleepers.enter(sleeper(64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ());
    // As in a child, however it was made.
    sleepers.process.store(process::number() + 1, Ordering::Relaxed);
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (0, 0));
    assert!(!sleepers.are_watched(64));
    let own =
        sleepers.enter(sleeper(64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    assert_eq!(wake(&sleepers, 64, 1, ANY, 100), (1, 90));
    assert_eq!(sleepers.leave(own), Some(100));
}

/// A thread that was forked in its wait comes back from it.
#[test]
fn who_was_forked_has_no_place() {
    let sleepers = Box::new(Sleepers::new());
    let place =
        sleepers.enter(sleeper(64, ANY, 10, None, CHOSEN), &Hints::new(), |_| ()).expect("there is room");
    sleepers.forked();
    assert_eq!(sleepers.leave(place), None);
    // In the same cell, perhaps.
    rtprof_profiler::init::open();
    let other = sleepers
        .enter(sleeper(64, ANY, 20, goroutine::current(), CHOSEN), &Hints::new(), |_| ())
        .expect("there is room");
    assert_eq!(sleepers.leave(place), None);
    let charge = sleepers.wake(64, 1, ANY, 100, |_, since| assert_eq!(since, 20)).charge;
    assert_eq!((charge.waits, charge.ticks), (1, 80));
    assert_eq!(sleepers.leave(other), Some(100));
    assert!(!sleepers.are_watched(64));
}

#[test]
fn a_waiter_that_is_not_watched_changes_no_home_and_has_its_turn() {
    let sleepers = Box::new(Sleepers::new());
    let hints = Hints::new();
    let enter = |start, note| {
        sleepers.enter(sleeper(64, ANY, start, None, note), &hints, |_| ()).expect("there is room")
    };
    let first = enter(10, OTHER);
    let home = sleepers.home(first.home.into()).read();
    assert!(!sleepers.are_watched(64));
    assert_eq!(sleepers.leave(first), None);
    let first = enter(12, OTHER);
    assert_eq!(sleepers.home(first.home.into()).read(), home, "the same cell again");
    let watched = enter(20, CHOSEN);
    assert!(sleepers.are_watched(64));
    assert_eq!((first.distance % 2, watched.distance), (1, 0));
    assert_eq!(wake(&sleepers, 64, 1, ANY, 30), (0, 0), "the other one has waited longer");
    assert_eq!(wake(&sleepers, 64, 1, ANY, 40), (1, 20));
    assert_eq!([first, watched].map(|place| sleepers.leave(place)), [None, Some(40)]);
    assert!(!sleepers.are_watched(64));
}

/// A waiter that stands for three.
/// What a waiter notes is one word in its cell.
#[test]
fn notes_are_words() {
    for is_watched in [true, false] {
        for weight in [0, 1, u64::from(u32::MAX)] {
            for address in [0, 1, 0x5555_5555_4321, usize::MAX] {
                let note = Note { is_watched, weight, caller: Caller::of(address) };
                let read = Note::of_word(note.word());
                assert_eq!((read.is_watched, read.weight), (is_watched, weight));
                if is_watched || weight != 0 {
                    assert_eq!(read.caller, note.caller);
                }
            }
        }
    }
    assert_eq!(Note::default().word(), UNWATCHED);
    let heavy = Note { is_watched: true, weight: u64::MAX, caller: Caller::of(7) };
    assert_eq!(Note::of_word(heavy.word()).weight, u64::from(u32::MAX));
    assert_ne!(Caller::of(0x7f00_0000_1000), Caller::of(0x7f00_0000_1005));
}

/// A wake says which function its waiter has waited in.
#[test]
fn a_wake_knows_the_caller() {
    let sleepers: &Sleepers = Box::leak(Box::new(Sleepers::new()));
    for address in [0x1000, 0x2000] {
        let note = Note { is_watched: true, weight: 1, caller: Caller::of(address) };
        let sleeper = Sleeper { address: 64, bits: 1, start: 10, goroutine: None, note };
        let place = sleepers.enter(sleeper, &Hints::new(), |_| ()).expect("a cell is free");
        let woken = sleepers.wake(64, 1, 1, 100, |_, _| ());
        assert_eq!(woken.caller, Caller::of(address));
        sleepers.leave(place);
    }
}

const THREE: Note = Note { is_watched: true, weight: 3, caller: Caller::UNKNOWN };
/// More than a sleep needs.
const LONG: u64 = 2 * LEAST_SLEEP;

/// A thread was woken while no waiter was watched, and has not run yet: the wake of another one is taken for its wake.
#[test]
fn what_was_missed_is_charged_by_the_next_wake() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |start, note| {
        sleepers.enter(sleeper(64, ANY, start, None, note), &Hints::new(), |_| ()).expect("there is room")
    };
    let leave_woken = |place, now| sleepers.leave_woken(place, now, || None).woken;
    let woken_before = enter(10, OTHER);
    let watched = enter(20, THREE);
    assert_eq!(wake(&sleepers, 64, 1, ANY, 50), (0, 0));
    assert_eq!(leave_woken(watched, 20 + LONG), None);
    assert_eq!(sleepers.leave(woken_before), None);
    assert!(sleepers.are_watched(64), "it is owed");
    assert_eq!(wake(&sleepers, 128, 1, ANY, 30 + LONG), (0, 0), "at this address");
    assert_eq!(wake(&sleepers, 64, 1, ANY, 30 + LONG), (3, 3 * LONG));
    assert_eq!(wake(&sleepers, 64, 1, ANY, 40 + LONG), (0, 0), "once");
    assert!(!sleepers.are_watched(64));

    // A wait that stands for itself was missed by no wake that hooks see; and a short one was none.
    for (note, now) in [(CHOSEN, 20 + LONG), (THREE, 20 + LEAST_SLEEP / 2)] {
        assert_eq!(leave_woken(enter(20, note), now), None);
        assert!(!sleepers.are_watched(64));
    }
    let (other, watched) = (enter(130, OTHER), enter(140, THREE));
    assert_eq!(wake(&sleepers, 64, 2, ANY, 150), (3, 30));
    assert_eq!(leave_woken(watched, 140 + LONG), Some(150));
    assert_eq!(sleepers.leave(other), None);
    assert!(!sleepers.are_watched(64));
}

#[test]
fn what_is_owed_for_long_is_lost() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |at: usize| {
        sleepers.enter(sleeper(at * 64, ANY, 10, None, THREE), &Hints::new(), |_| ()).expect("there is room")
    };
    let owe = |at| assert_eq!(sleepers.leave_woken(enter(at), 10 + LONG, || None).woken, None);
    owe(1);
    assert_eq!(wake(&sleepers, 64, 1, ANY, 10 + LONG + OWED_FOR + (2 << AGE)), (0, 0));
    assert!(!sleepers.are_watched(64));

    // It also takes no room that others need.
    (1..=CELLS).for_each(owe);
    let places: Vec<_> = (1..=CELLS).map(enter).collect();
    places.into_iter().for_each(|place| assert_eq!(sleepers.leave(place), None));
    assert!((1..=CELLS).all(|at| !sleepers.are_watched(at * 64)));
}

/// Wakes have looked at the table for another waiter, and not since then.
#[test]
fn the_wake_of_a_waiter_that_is_not_watched_is_unknown() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |start, note| {
        sleepers.enter(sleeper(64, ANY, start, None, note), &Hints::new(), |_| ()).expect("there is room")
    };
    let (other, watched) = (enter(10, OTHER), enter(20, CHOSEN));
    let charge = |now| sleepers.charge(64, now, |_| unreachable!("no goroutines here"));
    assert_eq!(charge(100).ticks, 80);
    assert_eq!(sleepers.leave(watched), Some(100));
    assert!(!sleepers.are_watched(64), "later unlocks charge no waiter");
    assert_eq!(sleepers.leave(other), None);
}

#[test]
fn a_reach_that_was_long_once_becomes_short() {
    let sleepers = Box::new(Sleepers::new());
    let enter = |note| {
        sleepers.enter(sleeper(64, ANY, 10, None, note), &Hints::new(), |_| ()).expect("there is room")
    };
    let reach = || sleepers.home(home_of(64)).read().reach.count();
    let mut many: Vec<_> = (0..100).map(|_| enter(OTHER)).collect();
    assert_eq!(reach(), 101, "an even one and a hundred odd ones");
    let last = many.pop().expect("a hundred");
    many.into_iter().for_each(|place| assert_eq!(sleepers.leave(place), None));
    assert_eq!(sleepers.leave(enter(CHOSEN)), None);
    assert_eq!(reach(), 101, "one is that far away");
    assert_eq!(sleepers.leave(last), None);
    assert_eq!(sleepers.leave(enter(CHOSEN)), None);
    assert_eq!(reach(), 1);
}
