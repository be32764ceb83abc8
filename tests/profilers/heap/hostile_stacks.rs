//! A million distinct stacks: memory stays bounded, the profile says what was dropped, totals stay exact.

use std::hint::black_box;

use test_support::address_space::resident;
use test_support::child;
use test_support::profile::{ALLOC_OBJECTS, INUSE_OBJECTS, Profile};

/// A million in a release build (ci/no-frame-pointers.sh). In a debug build, where unwinding is slow, enough to pass
/// the default limit.
const DEPTH: u32 = if cfg!(debug_assertions) { 18 } else { 20 };
const STACKS: i64 = 1 << DEPTH;

/// An object of a size that no other code of the process uses.
type Object = [u8; 1237];

/// Every path through `left` and `right` is a distinct stack: 2^DEPTH of them.
#[inline(never)]
fn left(depth: u32) {
    descend(depth);
    black_box(());
}

#[inline(never)]
fn right(depth: u32) {
    descend(depth);
    black_box(());
}

#[inline(always)]
fn descend(depth: u32) {
    if depth == 0 {
        black_box(Box::new(std::mem::MaybeUninit::<Object>::uninit()));
    } else {
        left(depth - 1);
        right(depth - 1);
    }
}

#[inline(never)]
fn million_stacks() {
    descend(DEPTH);
    black_box(());
}

fn run(limit: Option<usize>, budget: u64) {
    if let Some(limit) = limit {
        rtprof::set_max_stacks(limit);
    }
    rtprof::set_mem_profile_rate(1);
    let before = resident();
    million_stacks();
    let grown = resident().saturating_sub(before);
    rtprof::set_mem_profile_rate(0);

    let records = rtprof::mem_profile(true);
    let size = size_of::<Object>() as i64;
    let ours = records.iter().filter(|record| record.alloc_bytes == record.alloc_objects * size);
    let ours: Vec<_> = ours.filter(|record| record.alloc_objects > 0).collect();
    println!("{} records, {} MiB", ours.len(), grown >> 20);
    assert!(grown < budget, "{} stacks took {} MiB", ours.len(), grown >> 20);
    if let Some(limit) = limit {
        assert!(records.len() <= limit + 64, "{} records, the limit is {limit}", records.len());
    }
    let allocated: i64 = ours.iter().map(|record| record.alloc_objects).sum();
    let in_use: i64 = ours.iter().map(|record| record.in_use_objects()).sum();
    assert_eq!((allocated, in_use), (STACKS, 0), "events past the limit are counted all the same");
    let stacks = ours.len() as i64;
    drop(records);

    let profile = Profile::heap();
    let totals = profile.totals_of_size(size_of::<Object>());
    assert_eq!((totals[ALLOC_OBJECTS], totals[INUSE_OBJECTS]), (STACKS, 0), "so does the written profile");
    let comments = profile.comments();
    let dropped = comments.lines().find(|line| line.contains("limit on distinct stacks"));
    let dropped = dropped.unwrap_or_else(|| panic!("the profile says what was dropped: {comments:?}"));
    let number = dropped.split(' ').find_map(|word| word.parse::<i64>().ok());
    assert!(number.is_some_and(|number| number > STACKS - stacks - 64), "{stacks} stacks kept: {dropped}");
    let overflow = profile.samples_of("too_many_distinct_stacks");
    assert!(!overflow.is_empty(), "and has it in a bucket whose stack says so");
}

#[test]
fn limit_holds() {
    child::isolated("limit_holds", || run(Some(10_000), 64 << 20));
}

#[test]
fn default_limit_bounds_memory() {
    child::isolated("default_limit_bounds_memory", || run(None, 128 << 20));
}
