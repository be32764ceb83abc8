//! Forks while other threads sample, export and make cuts, then does all of that in the child.
//!
//! A child has one thread and a copy of every lock, which may be held by threads that the child does not have: a hook
//! that takes any lock hangs at the child's first sample, but only if the fork happened at that moment.

use std::hint::black_box;
use std::time::Instant;

use test_support::fork;
use test_support::profile::{INUSE_OBJECTS, Profile};
use test_support::{Background, rounds, stress, workload};

const RATE: usize = 64;

#[inline(never)]
fn kept_over_the_fork() -> Vec<Vec<u8>> {
    black_box((1..100).map(|size| vec![7_u8; size * 100]).collect())
}

#[inline(never)]
fn allocated_in_the_child() -> Vec<Vec<u8>> {
    black_box((1..100).map(|size| vec![9_u8; size * 100]).collect())
}

fn in_the_child(kept: Vec<Vec<u8>>, export: bool) {
    let new = allocated_in_the_child();
    assert!(kept.iter().flatten().all(|&byte| byte == 7), "what the parent made is intact");
    drop(kept);
    black_box(rtprof::mem_profile(false));
    if export {
        let profile = Profile::heap();
        let kept = profile.totals_of("kept_over_the_fork");
        assert_eq!(kept[INUSE_OBJECTS], 0, "the free in the child of what the parent made was found");
        assert!(profile.totals_of("allocated_in_the_child")[INUSE_OBJECTS] > 0, "the child is sampled");
        std::thread::spawn(workload::every_kind).join().expect("a thread of the child ends well");
    }
    drop(new);
    black_box(rtprof::mem_profile(true));
}

/// Forks, and fails unless the child ends well and in time.
fn fork_once(round: usize) {
    let kept = kept_over_the_fork();
    let export = round.is_multiple_of(8);
    fork::in_a_child(&format!("round {round} (export: {export})"), || in_the_child(kept, export));
}

#[test]
fn fork_while_sampling() {
    fork::isolated("fork_while_sampling", "", || {
        rtprof::set_mem_profile_rate(RATE);
        let background = Background::default();
        std::thread::scope(|scope| {
            let background = &background;
            let ends = background.ends_here();
            scope.spawn(|| background.repeat(|| drop(black_box(vec![[1_u8; 300]; 3]))));
            scope.spawn(|| background.repeat(workload::every_kind));
            scope.spawn(|| background.repeat(|| drop(black_box(rtprof::mem_profile(true)))));
            scope.spawn(|| {
                background.repeat(|| {
                    let sink = std::io::sink();
                    rtprof::pprof::write_heap_profile(sink).expect("a sink takes everything");
                });
            });
            let (started, mut rounds) = (Instant::now(), 0);
            while started.elapsed() < stress() || rounds < 16 {
                fork_once(rounds);
                rounds += 1;
            }
            println!("{rounds} forks");
            drop(ends);
        });
    });
}

/// A process's first export makes structures that later exports reuse; a child forked at that moment has them half
/// made.
#[test]
fn fork_during_the_first_export() {
    for round in 0..rounds(2, 4) {
        fork::isolated("fork_during_the_first_export", &round.to_string(), || {
            rtprof::set_mem_profile_rate(1);
            workload::every_kind();
            let exporting = std::thread::spawn(|| {
                rtprof::pprof::write_heap_profile(std::io::sink()).expect("a sink takes everything");
            });
            for fork in 0..rounds(2, 8) {
                fork_once(8 * fork);
            }
            exporting.join().expect("the export ends well");
        });
    }
}
