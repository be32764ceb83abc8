//! Thousands of short threads, and every setting changed while they run.
//!
//! A thread's sampling state dies with the thread, while its objects live on and are freed elsewhere: lost or doubled
//! frees show as a count in use that does not return to zero, and stale state as a crash.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rtprof::StackMode;
use test_support::profile::{ALLOC_OBJECTS, INUSE_OBJECTS, INUSE_SPACE, Profile, Sample};
use test_support::random::Random;
use test_support::{child, rounds, stress};

#[inline(never)]
fn storm_object(size: usize) -> Vec<u8> {
    black_box(vec![1; size])
}

fn assert_all_is_freed(function: &str) {
    let totals = Profile::heap().totals_of(function);
    assert!(totals[ALLOC_OBJECTS] > 0, "{function} was sampled");
    assert_eq!((totals[INUSE_OBJECTS], totals[INUSE_SPACE]), (0, 0), "{function}: every free was found");
}

/// Each thread makes a handful of allocations; half of them are freed by a thread that outlives it.
#[test]
fn storm() {
    child::isolated("storm", || {
        rtprof::set_mem_profile_rate(256);
        let threads = AtomicUsize::new(0);
        let started = Instant::now();
        while started.elapsed() < stress() || threads.load(Relaxed) < 2000 {
            let (send, receive) = mpsc::channel::<Vec<Vec<u8>>>();
            let elsewhere = std::thread::spawn(move || receive.into_iter().for_each(drop));
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    let send = send.clone();
                    scope.spawn(|| {
                        let number = threads.fetch_add(1, Relaxed);
                        let sizes = [16, 200, 1024, 5000, 100_000 + number % 7];
                        let send = send;
                        send.send(sizes.map(storm_object).into()).expect("the other thread listens");
                        sizes.into_iter().for_each(|size| drop(storm_object(size)));
                    });
                }
            });
            drop(send);
            elsewhere.join().expect("it ends well");
        }
        println!("{} threads", threads.load(Relaxed));
        assert_all_is_freed("storm_object");
    });
}

/// Nothing that a thread allocates outlives it, neither of std nor of ours. (At rate 1 a program that prints for the first time
/// has one more object of 1,024 bytes: the buffer of std's `stdout`.) The harness is no part of the question: its main thread
/// reads its settings and begins to wait for the test at some moment, and what it does that with is in use.
#[test]
fn threads_leave_nothing() {
    child::isolated("threads_leave_nothing", || {
        rtprof::set_mem_profile_rate(1);
        for _ in 0..50 {
            std::thread::spawn(|| drop(storm_object(100))).join().expect("it ends well");
        }
        rtprof::set_mem_profile_rate(0);
        let profile = Profile::heap();
        let live = |sample: &Sample| sample.values[INUSE_OBJECTS] != 0 && !sample.has("test::test_main");
        let live: Vec<_> = profile.samples().into_iter().filter(live).collect();
        assert!(live.is_empty(), "{live:#?}");
        assert!(profile.totals_of("storm_object")[ALLOC_OBJECTS] >= 50);
    });
}

#[inline(never)]
fn flipped_object(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

/// Allocates, grows and frees at random until `stop` is set; then frees all.
fn work(seed: u64, stop: &AtomicBool) {
    let (mut random, mut live) = (Random::new(seed), Vec::new());
    while !stop.load(Relaxed) {
        let size = [1, 40, 700, 4096, 4097, 60_000, 3 << 20][random.below(7)];
        live.push(flipped_object(size));
        if live.len() > 50 {
            let place = random.below(live.len());
            live.swap_remove(place);
            let place = random.below(live.len());
            let object: &mut Vec<u8> = &mut live[place];
            object.reserve_exact(random.below(3000));
            object.shrink_to(random.below(5000));
        }
    }
}

/// The rate, the capture mode and the cycle change at every moment; every cut must be sound.
#[test]
fn knobs_turned_under_load() {
    child::isolated("knobs_turned_under_load", || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let stop = &stop;
                scope.spawn(move || work(seed, stop));
            }
            let turned = std::panic::catch_unwind(turn_knobs);
            stop.store(true, Relaxed);
            turned.expect("every cut is sound");
        });
        rtprof::set_mem_profile_rate(0);
        assert_all_is_freed("flipped_object");
    });
}

fn turn_knobs() {
    let mut random = Random::new(99);
    let (started, mut turns) = (Instant::now(), 0_u64);
    while started.elapsed() < stress() || turns < rounds(200, 500) {
        let rates = [0, 1, 1, 2, 100, 4096, 512 << 10, usize::MAX];
        rtprof::set_mem_profile_rate(rates[random.below(rates.len())]);
        let modes = [StackMode::Auto, StackMode::FramePointers, StackMode::Unwind];
        match random.below(6) {
            0 => rtprof::advance_cycle(),
            1 => rtprof::flush_cycle(),
            2 => rtprof::set_stack_mode(modes[random.below(3)]),
            3 => {
                for record in rtprof::mem_profile(true) {
                    let in_use = (record.in_use_objects(), record.in_use_bytes());
                    assert!(in_use.0 >= 0 && in_use.1 >= 0, "a cut is consistent: {record:?}");
                }
            }
            4 if turns.is_multiple_of(50) => drop(Profile::heap()),
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
        turns += 1;
    }
    rtprof::set_stack_mode(StackMode::Auto);
    println!("{turns} turns");
}
