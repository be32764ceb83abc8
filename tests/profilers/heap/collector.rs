//! Programs that drive cycles themselves have Go's semantics: the last complete cut.
//!
//! Every test is a separate process, as the first `collector::cycle()` changes the process permanently.

use std::hint::black_box;

use rtprof::collector;
use test_support::{Background, child, stress};

/// Allocates objects of one size. No other code of the process uses these sizes, so that they identify the records.
fn objects<const SIZE: usize>(count: usize) -> Vec<Box<[u8; SIZE]>> {
    black_box((0..count).map(|_| Box::new([1; SIZE])).collect())
}

/// Returns the number of allocated and of freed objects of one size.
fn seen(size: i64) -> (i64, i64) {
    let records = rtprof::mem_profile(true);
    for record in &records {
        assert!(record.in_use_objects() >= 0 && record.in_use_bytes() >= 0, "{record:?}");
    }
    let ours = records.iter().filter(|r| r.alloc_objects > 0 && r.alloc_bytes == r.alloc_objects * size);
    ours.fold((0, 0), |(allocated, freed), r| (allocated + r.alloc_objects, freed + r.free_objects))
}

fn complete_cycle() {
    collector::cycle();
    collector::sweep(|_| {});
    collector::post_sweep();
}

/// Without a collector each call makes a cut: all earlier events are in it.
#[test]
fn without_a_collector_every_call_is_a_cut() {
    child::isolated("without_a_collector_every_call_is_a_cut", || {
        rtprof::set_mem_profile_rate(1);
        let first = objects::<1201>(10);
        assert_eq!(seen(1201), (10, 0));
        let second = objects::<1201>(5);
        drop(first);
        assert_eq!(seen(1201), (15, 10));
        drop(second);
        assert_eq!(seen(1201), (15, 15));
        // Cycles that the program advances and flushes by hand lose nothing, however many they are: the slots of the
        // counts repeat after three.
        for (advances, allocated) in (0..8).zip(16..) {
            let third = objects::<1201>(1);
            (0..advances).for_each(|_| rtprof::advance_cycle());
            assert_eq!(seen(1201), (allocated, allocated - 1), "after {advances} cycles");
            rtprof::flush_cycle();
            rtprof::flush_cycle();
            drop(third);
            (0..advances).for_each(|_| rtprof::advance_cycle());
            assert_eq!(seen(1201), (allocated, allocated), "after {advances} cycles");
        }
    });
}

/// Before any cut is complete there would be nothing to report: Go then reports the counts so far.
#[test]
fn nothing_published_yet() {
    child::isolated("nothing_published_yet", || {
        rtprof::set_mem_profile_rate(1);
        let kept = objects::<1301>(10);
        collector::cycle();
        assert_eq!(seen(1301), (10, 0), "better than nothing");
        drop(kept);
    });
}

/// Once a cut is complete, an allocation after the last cut is reported only two cycles later.
#[test]
fn last_complete_cut() {
    child::isolated("last_complete_cut", || {
        rtprof::set_mem_profile_rate(1);
        let old = objects::<1401>(10);
        (0..3).for_each(|_| complete_cycle());
        assert_eq!(seen(1401), (10, 0));
        let new = objects::<1401>(5);
        drop(old);
        assert_eq!(seen(1401), (10, 0), "neither the allocations nor the frees since the cut");
        (0..2).for_each(|_| complete_cycle());
        assert_eq!(seen(1401), (15, 10), "both at once, two cycles later");
        drop(new);
    });
}

/// Objects that a sweep frees were dead at the cut: they count as freed at the cut, as soon as the sweep is done.
#[test]
fn sweep_frees_belong_to_the_previous_cut() {
    child::isolated("sweep_frees_belong_to_the_previous_cut", || {
        rtprof::set_mem_profile_rate(1);
        let (dead, live) = (objects::<1501>(10), objects::<1501>(3));
        complete_cycle();
        collector::cycle();
        collector::sweep(|sweep| {
            drop(dead);
            sweep.swept(10 * 1501);
        });
        collector::post_sweep();
        let after = seen(1501);
        assert_eq!(after, (13, 10), "the allocations of before the cut with the frees of its sweep");
        drop(live);
    });
}

/// A sweep may free an object that was allocated after the cut; its free is then reported with its allocation.
#[test]
fn sweep_never_goes_below_zero() {
    child::isolated("sweep_never_goes_below_zero", || {
        rtprof::set_mem_profile_rate(1);
        for _ in 0..50 {
            let before = objects::<1601>(4);
            collector::cycle();
            let after = objects::<1601>(6);
            collector::sweep(|_| drop((before, after, objects::<1601>(2))));
            // `seen` checks every record.
            seen(1601);
            collector::post_sweep();
            seen(1601);
        }
        (0..3).for_each(|_| complete_cycle());
        assert_eq!(seen(1601), (50 * 12, 50 * 12), "nothing is lost");
    });
}

/// Cycles from one thread, allocations and sweeps in others: no cut shows half of an object's life.
#[test]
fn cycles_under_load() {
    child::isolated("cycles_under_load", || {
        rtprof::set_mem_profile_rate(1);
        let background = Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| background.repeat(|| drop(objects::<1701>(20))));
            scope.spawn(|| background.repeat(|| collector::sweep(|_| drop(objects::<1701>(20)))));
            let (started, mut cycles) = (std::time::Instant::now(), 0);
            while started.elapsed() < stress() / 3 || cycles < 50 {
                cycles += 1;
                collector::cycle();
                seen(1701);
                collector::post_sweep();
                seen(1701);
            }
        });
        (0..3).for_each(|_| complete_cycle());
        let (allocated, freed) = seen(1701);
        assert!(allocated > 0 && allocated == freed, "{allocated} allocated, {freed} freed");
    });
}
