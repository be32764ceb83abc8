use super::*;
use crate::built_in::{BLOCK, HEAP, MUTEX};
use crate::description::Description;
use crate::record::{Detail, Leaf};
use crate::{decoded, lookup};

static STACKS: [[usize; 2]; 3] = [[0x11, 0x22], [0x33, 0x44], [0x55, 0x66]];

fn heap(counts: &[(usize, i64, i64)], rate: usize) -> Snapshot {
    let records = counts.iter().map(|&(at, allocs, frees)| Record {
        detail: Detail::Objects { size: 100, rate },
        ..Record::new(&STACKS[at][..], Leaf::Allocator, [allocs, allocs - frees])
    });
    Snapshot::new(ProfileKind::Heap { of: &HEAP.description, rate }, records.collect(), Vec::new())
}

fn written(snapshot: &Snapshot) -> Vec<Vec<i64>> {
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes, 0).unwrap();
    let profile = decoded::profile(&bytes);
    decoded::check(&profile);
    assert_eq!(profile.duration_nanos, snapshot.time_and_duration_nanos().1);
    profile.sample.into_iter().map(|sample| sample.value).collect()
}

#[test]
fn everything_is_less_what_it_was() {
    // A record with objects freed since, an unchanged one, and a new one.
    let earlier = heap(&[(0, 5, 1), (1, 7, 7)], 1);
    let later = || heap(&[(0, 6, 6), (1, 7, 7), (2, 2, 1)], 1);
    let all = later().since(&earlier, Since::Everything);
    assert_eq!(written(&all), [[1, 100, -4, -400], [2, 200, 1, 100]]);
    assert!(all.time_and_duration_nanos().1 > 0);
    let accumulated = later().since(&earlier, Since::Accumulated);
    assert_eq!(written(&accumulated), [[1, 100, 0, 0], [2, 200, 1, 100]]);
    // Objects that existed before and are still in use are shown as in use.
    let accumulated = heap(&[(0, 5, 1)], 1).since(&earlier, Since::Accumulated);
    assert_eq!(written(&accumulated), [[0, 0, 4, 400]]);
    assert!(written(&heap(&[(1, 7, 7)], 1).since(&earlier, Since::Accumulated)).is_empty());
}

#[test]
fn differences_of_estimates_add_up() {
    let counts: Vec<Vec<(usize, i64, i64)>> =
        (1..20i64).map(|n| (0..3).map(|at| (at, n * n, n * (n - 1))).collect()).collect();
    let rate = 777;
    let mut sums = [[0; 4]; 3];
    for steps in counts.windows(2) {
        let step = heap(&steps[1], rate).since(&heap(&steps[0], rate), Since::Everything);
        for (sum, values) in sums.iter_mut().zip(written(&step)) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let (first, last) = (written(&heap(&counts[0], rate)), written(&heap(&counts[18], rate)));
    for ((sum, first), last) in sums.iter().zip(first).zip(last) {
        let whole: Vec<i64> = last.iter().zip(first).map(|(last, first)| last - first).collect();
        assert_eq!(sum.to_vec(), whole);
    }
}

fn waits(of: &'static Description, counts: &[(usize, i64, i64)]) -> Snapshot {
    let record =
        |&(at, count, ticks): &(usize, i64, i64)| Record::new(&STACKS[at][..], Leaf::Hooks, [count, ticks]);
    let kind = ProfileKind::Contention { of, ticks_per_second: 1_000_000_000, fraction: 1 };
    Snapshot::new(kind, counts.iter().map(record).collect(), Vec::new())
}

#[test]
fn waits_are_less_what_they_were_and_in_order() {
    let earlier = waits(&BLOCK.description, &[(0, 9, 900), (1, 1, 50)]);
    let later = waits(&BLOCK.description, &[(0, 10, 910), (1, 1, 50), (2, 4, 400)]);
    let waits_and_nanos = |snapshot: &Snapshot| -> Vec<[i64; 2]> {
        written(snapshot).iter().map(|values| [values[0], values[1]]).collect()
    };
    assert_eq!(waits_and_nanos(&later.since(&earlier, Since::Everything)), [[4, 400], [1, 10]]);
    // Snapshots of different profiles have nothing in common.
    let other = waits(&MUTEX.description, &[(0, 1, 1)]).since(&earlier, Since::Everything);
    assert_eq!(waits_and_nanos(&other), [[1, 1]]);
}

#[test]
fn counts_come_and_go() {
    let counts = |counts: &[(usize, i64)]| {
        let record = |&(at, count): &(usize, i64)| Record::new(&STACKS[at][..], Leaf::Skip(0), [count, 0]);
        let kind = ProfileKind::Custom { name: "test/things".into() };
        Snapshot::new(kind, counts.iter().map(record).collect(), Vec::new())
    };
    let later = counts(&[(0, 3), (2, 1)]);
    let change = later.since(&counts(&[(0, 5), (1, 2)]), Since::Everything);
    assert_eq!(written(&change), [[-2], [1], [-2]]);
}

#[test]
fn every_profile_has_a_change() {
    for name in ["heap", "allocs", "block", "mutex", "threadcreate"] {
        let profile = lookup(name).unwrap();
        let earlier = profile.snapshot().unwrap();
        let change = profile.snapshot().unwrap().since(&earlier, Since::Everything);
        assert_eq!(change.name(), name);
        assert!(change.time_and_duration_nanos().1 > 0);
        written(&change);
    }
}
