//! Allocation before main, in thread-local destructors and in pthread key destructors.
//!
//! The first happens before the profiler's own constructor, the others after most of a thread's state is destroyed
//! (rust#116390 and its successors): a hook that initialises lazily or accesses a destroyed thread-local aborts the
//! process there.

use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use test_support::profile::{ALLOC_OBJECTS, INUSE_OBJECTS, INUSE_SPACE, Profile};
use test_support::{child, dying};
#[cfg(feature = "http")]
use test_support::{until, web};

/// Objects made before main, freed or grown after it.
static EARLY: [AtomicPtr<Vec<u64>>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

/// The constructors run in every process of this program, so they act only in this test's child.
const BEFORE_MAIN: &str = "hostile_life::before_main";

extern "C" fn very_early() {
    if !child::is_before_main(BEFORE_MAIN) {
        return;
    }
    allocate_early(0);
}

extern "C" fn early() {
    if !child::is_before_main(BEFORE_MAIN) {
        return;
    }
    allocate_early(1);
}

fn allocate_early(place: usize) {
    for round in 0..1000 {
        black_box(vec![round; 40]);
    }
    EARLY[place].store(Box::into_raw(Box::new(vec![place as u64; 1000])), Relaxed);
}

/// Runs before every constructor without a priority.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static VERY_EARLY: extern "C" fn() = very_early;

/// Runs among the constructors without a priority.
#[used]
#[unsafe(link_section = ".init_array")]
static SOMEWHERE: extern "C" fn() = early;

#[test]
fn before_main() {
    child::isolated("before_main", || {
        rtprof::set_mem_profile_rate(1);
        for (place, object) in EARLY.iter().enumerate() {
            let object = object.load(Relaxed);
            assert!(!object.is_null(), "constructor {place} ran");
            // SAFETY: the pointer comes from `Box::into_raw`, and is taken once.
            let mut numbers = unsafe { Box::from_raw(object) };
            assert!(numbers.iter().all(|&number| number == place as u64), "its content is intact");
            numbers.extend(0..100_000);
            assert_eq!(numbers[999], place as u64);
            assert_eq!(numbers[1000], 0);
        }
        // Frees of objects that were never counted must not be counted either.
        for record in rtprof::mem_profile(true) {
            assert!(record.in_use_objects() >= 0 && record.in_use_bytes() >= 0, "{record:?}");
        }
        let ours = Profile::heap().totals_of("before_main");
        assert!(ours[ALLOC_OBJECTS] >= 2, "sampling works after all that: {ours:?}");
    });
}

static DESTRUCTIONS: AtomicUsize = AtomicUsize::new(0);

/// Makes three allocations, and frees them all.
#[inline(never)]
fn in_a_destructor() {
    DESTRUCTIONS.fetch_add(1, Relaxed);
    let mut text = black_box(String::from("allocated by a dying thread"));
    text.reserve_exact(500);
    black_box(vec![0_u8; 20_000]);
    black_box(text);
}

#[test]
fn thread_destructors() {
    child::isolated("thread_destructors", || {
        rtprof::set_mem_profile_rate(1);
        (0..50).for_each(|_| dying::run(in_a_destructor));
        let destructions = DESTRUCTIONS.load(Relaxed) as i64;
        assert_eq!(
            destructions,
            50 * dying::DESTRUCTORS,
            "all destructors ran, those of the key in all rounds"
        );
        let totals = Profile::heap().totals_of("in_a_destructor");
        assert_eq!((totals[INUSE_OBJECTS], totals[INUSE_SPACE]), (0, 0), "every free was found");
        assert_eq!(totals[ALLOC_OBJECTS], destructions * 3, "a dying thread is sampled to the last");
    });
}

/// After main, `atexit` handlers run when most of std is shut down.
#[test]
fn after_main() {
    extern "C" fn at_exit() {
        for _ in 0..1000 {
            in_a_destructor();
        }
        let mut bytes = Vec::new();
        rtprof::pprof::write_heap_profile(&mut bytes).expect("a vector takes everything");
        let totals = Profile::read(&bytes).totals_of("in_a_destructor");
        assert!(totals[ALLOC_OBJECTS] >= 3000 && totals[INUSE_OBJECTS] == 0, "{totals:?}");
    }
    child::isolated("after_main", || {
        rtprof::set_mem_profile_rate(1);
        // SAFETY: the handler neither unwinds (a panic in it aborts, which fails the test) nor exits.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    });
}

/// The process ends while clients are being answered, and their threads and the server's go on until the last moment.
#[cfg(feature = "http")]
#[test]
fn requests_during_exit() {
    const TARGETS: [&str; 4] = ["heap", "goroutine?debug=2", "block?debug=1", "mutex"];
    let test = "requests_during_exit";
    for round in 0..6 {
        child::isolated_as(test, &round.to_string(), || {
            rtprof::set_mem_profile_rate(1);
            rtprof::set_block_profile_rate(1);
            rtprof::set_mutex_profile_fraction(1);
            let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
            let address = server.local_addr();
            let answers: &AtomicUsize = Box::leak(Box::default());
            for target in TARGETS {
                std::thread::spawn(move || {
                    loop {
                        let answer = web::exchange(
                            address,
                            web::request(address, "GET", &format!("/debug/pprof/{target}"), &[], ""),
                        );
                        answers.fetch_add(usize::from(answer.is_ok()), Relaxed);
                    }
                });
            }
            until("some are answered", || answers.load(Relaxed) >= round * 2);
            match round % 3 {
                // Returns from `main`, with the server and without it.
                0 => drop(server),
                1 => std::mem::forget(server),
                _ => std::process::exit(0),
            }
        });
    }
}
