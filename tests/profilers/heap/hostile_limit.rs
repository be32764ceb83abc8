//! An address-space limit, under which neither the reserved range nor the tables get all their memory.
//!
//! The program goes on undisturbed: events that cannot be recorded are counted, and the profile says so.

use std::hint::black_box;

use test_support::address_space::{limit_address_space, limited_to, mapped, of_the_program};
use test_support::inner::IS_SYSTEM;
use test_support::profile::{ALLOC_OBJECTS, INUSE_OBJECTS, Profile};
use test_support::{child, skipped, workload};

#[inline(never)]
fn small_objects(count: usize) -> Vec<Box<dyn Send>> {
    black_box((0..count).map(|_| Box::new([3_u8; 100]) as Box<dyn Send>).collect())
}

/// The depth of the paths through [`many_stacks`], each of which is a stack.
const DEPTH: u32 = 16;

/// Allocates on many stacks, so that the tables need to grow.
#[inline(never)]
fn many_stacks(depth: u32, live: &mut Vec<Box<dyn Fn() -> u32>>) {
    if depth == 0 {
        let one = black_box(1);
        live.push(Box::new(move || one));
        return;
    }
    many_stacks(depth - 1, live);
    black_box(());
    many_stacks(depth - 1, live);
    black_box(());
}

fn sound(records: &[rtprof::MemProfileRecord]) {
    for record in records {
        assert!(record.in_use_objects() >= 0 && record.in_use_bytes() >= 0, "{record:?}");
    }
}

/// The process starts under the limit, so that the range cannot be reserved whole, or not at all.
#[test]
fn from_the_start() {
    let test = "from_the_start";
    for megabytes in [64_u64, 200, 1000, 4000, 40_000] {
        // Other allocators reserve far ahead: they would be out of memory before our allocator.
        if megabytes < 1000 && !IS_SYSTEM {
            continue;
        }
        let scenario = megabytes.to_string();
        if child::is(test, &scenario) {
            rtprof::set_mem_profile_rate(1);
            let live = small_objects(20_000);
            workload::every_kind();
            drop(live);
            sound(&rtprof::mem_profile(true));
            // The range reserved for samples is a small part of the limit: the program still gets three quarters of the
            // limit in one piece. (Other allocators reserve for themselves.)
            if IS_SYSTEM && (1000..=4000).contains(&megabytes) {
                let most = (megabytes as usize) << 20;
                assert!(
                    Vec::<u8>::new().try_reserve_exact(most / 4 * 3).is_ok(),
                    "{} bytes are taken",
                    mapped()
                );
            }
        } else if !child::any() {
            // The program's own code, of which there is much, takes none of it.
            let limit = megabytes + (of_the_program() >> 20);
            let output = child::output(test, &scenario, |command| {
                // The C library reserves 64 MB for each thread that finds another one in its allocator.
                command.env("MALLOC_ARENA_MAX", "1");
                limited_to(limit)(command);
            });
            assert!(output.status.success(), "{megabytes} MB: {}", child::report(&output));
        }
    }
}

/// Monitors of virtual memory see what is used, and not what may be used some day: also with many samples, and with what
/// exports take.
#[test]
fn little_is_reserved() {
    if !IS_SYSTEM {
        skipped("little_is_reserved", "this allocator reserves for itself");
        return;
    }
    child::isolated("little_is_reserved", || {
        assert!(mapped() < 1 << 30, "{} bytes are mapped at the start", mapped());
        rtprof::set_mem_profile_rate(1);
        let before = mapped();
        let objects = small_objects(1_000_000);
        let taken = mapped() - before;
        // The list, and for each object its place in the class of 112 bytes and as much beside it.
        let needed = 1_000_000 * (16 + 112 + 112);
        assert!((needed..needed * 5 / 4).contains(&taken), "{taken} bytes for {needed}");
        let profile = Profile::heap();
        assert_eq!(profile.totals_of("small_objects")[INUSE_OBJECTS], 1_000_001);
        assert!(
            mapped() < before + needed * 5 / 4 + (256 << 20),
            "{} bytes after an export",
            mapped() - before
        );
        drop(objects);
    });
}

/// The limit is set while the program runs: stacks and records run out of memory.
#[test]
fn while_it_runs() {
    if !IS_SYSTEM {
        skipped("while_it_runs", "this allocator is out of memory before we are");
        return;
    }
    child::isolated("while_it_runs", || {
        rtprof::set_mem_profile_rate(1);
        let mut live = Vec::with_capacity(1 << DEPTH);
        let unlimited = limit_address_space(mapped() + (4 << 20));
        many_stacks(DEPTH, &mut live);
        let objects = small_objects(10_000);
        // The system's allocator is out of memory too, and the caller must receive its error.
        assert!(Vec::<u8>::new().try_reserve_exact(1 << 30).is_err(), "the limit is in force");
        drop(objects);
        assert_eq!(live.iter().map(|object| object()).sum::<u32>(), 1 << DEPTH, "no object is damaged");
        limit_address_space(unlimited);
        rtprof::set_mem_profile_rate(0);

        sound(&rtprof::mem_profile(true));
        let profile = Profile::heap();
        let totals = profile.totals_of("many_stacks");
        println!("{totals:?}\n{}", profile.comments());
        assert!(totals[ALLOC_OBJECTS] > 0, "what came before the limit is there");
        assert!(totals[ALLOC_OBJECTS] < 1 << DEPTH, "the limit was felt, or this test tests nothing");
        assert!(!profile.comments().is_empty(), "the profile says that something was dropped");
        live.clear();
        let totals = Profile::heap().totals_of("many_stacks");
        assert_eq!(totals[INUSE_OBJECTS], 0, "what was counted is found when it is freed");

        // With memory again, recording goes on.
        rtprof::set_mem_profile_rate(1);
        let before = Profile::heap().totals_of("small_objects")[ALLOC_OBJECTS];
        let objects = small_objects(1000);
        let after = Profile::heap().totals_of("small_objects")[ALLOC_OBJECTS];
        assert_eq!(after - before, 1001, "1000 objects and their list");
        drop(objects);
    });
}
