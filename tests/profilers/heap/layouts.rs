//! Sampled objects keep their content, alignment and zeros, for every layout and every move of an object between the
//! inner allocator, the pool and the table.

use std::alloc::{GlobalAlloc, Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rtprof::ProfAlloc;
use test_support::child;
use test_support::profile::{ALLOC_OBJECTS, INUSE_OBJECTS, INUSE_SPACE, Profile};
use test_support::random::Random;

/// Bytes that repeat after 256, so that every object can begin with another byte.
static PATTERN: [u8; 4096 + 256] = {
    let (mut pattern, mut place) = ([0; 4096 + 256], 0);
    while place < pattern.len() {
        pattern[place] = (place as u8).wrapping_mul(31).wrapping_add(7);
        place += 1;
    }
    pattern
};

static ZEROS: [u8; 4096] = [0; 4096];

/// An object filled with bytes that depend on its seed.
struct Filled {
    pointer: *mut u8,
    layout: Layout,
    seed: u8,
}

// SAFETY: this object owns the memory.
unsafe impl Send for Filled {}

impl Filled {
    #[inline(never)]
    fn filled_object(layout: Layout, zeroed: bool, seed: u8) -> Self {
        // SAFETY: the size is not 0.
        let pointer = unsafe { if zeroed { alloc_zeroed(layout) } else { alloc(layout) } };
        assert!(!pointer.is_null());
        let object = Self { pointer, layout, seed };
        object.check_alignment();
        if zeroed {
            let zeros = object.bytes().chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()]);
            assert!(zeros, "{layout:?} is zeroed");
        }
        object.fill(0);
        object
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is allocated with this size, and initialized by `fill` or `alloc_zeroed`; one thread uses
        // it.
        unsafe { std::slice::from_raw_parts(self.pointer, self.layout.size()) }
    }

    /// Returns the object's range from `from` to `to` in pieces, each with its expected bytes.
    fn pieces(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, &'static [u8])> + use<> {
        let seed = usize::from(self.seed);
        (from..to).step_by(4096).map(move |place| {
            let start = (place + seed) % 256;
            (place, &PATTERN[start..start + 4096.min(to - place)])
        })
    }

    fn fill(&self, from: usize) {
        for (place, piece) in self.pieces(from, self.layout.size()) {
            // SAFETY: the piece lies within the object.
            unsafe { self.pointer.add(place).copy_from(piece.as_ptr(), piece.len()) };
        }
    }

    fn check_alignment(&self) {
        assert_eq!(self.pointer as usize % self.layout.align(), 0, "{:?} is aligned", self.layout);
    }

    fn check(&self, length: usize) {
        for (place, piece) in self.pieces(0, length) {
            let intact = &self.bytes()[place..place + piece.len()] == piece;
            assert!(intact, "{:?} keeps its content at {place}", self.layout);
        }
    }

    #[inline(never)]
    fn resized(self, size: usize) -> Self {
        let old = self.layout;
        // SAFETY: the object is allocated with this layout; the new size is neither 0 nor too large.
        let pointer = unsafe { realloc(self.pointer, old, size) };
        assert!(!pointer.is_null());
        let layout = Layout::from_size_align(size, old.align()).expect("sizes here are small");
        let object = Self { pointer, layout, seed: self.seed };
        object.check_alignment();
        let kept = old.size().min(size);
        object.check(kept);
        object.fill(kept);
        object
    }

    fn free(self) {
        self.check(self.layout.size());
        // SAFETY: the object is allocated with this layout, and not used again.
        unsafe { dealloc(self.pointer, self.layout) };
    }
}

/// Returns a size near a boundary: of classes, of the pool, of pages, of glibc's own mappings.
fn size(random: &mut Random) -> usize {
    let edge = [16, 64, 128, 256, 1024, 2048, 4096, 8192, 65_536, 131_072, 1 << 20][random.below(11)];
    match random.below(3) {
        0 => 1 + random.below(4200),
        1 => edge + random.below(3) - 1,
        _ => 1 + random.below(edge),
    }
}

fn churn(seed: u64, rounds: usize) {
    let (mut random, mut live) = (Random::new(seed), Vec::<Filled>::new());
    for round in 0..rounds {
        match random.below(4) {
            _ if live.len() < 20 => {
                let align = 1 << random.below(if round.is_multiple_of(8) { 17 } else { 7 });
                let layout = Layout::from_size_align(size(&mut random), align).expect("it is small");
                live.push(Filled::filled_object(layout, random.below(2) == 0, round as u8));
            }
            0 | 1 => {
                let object = live.swap_remove(random.below(live.len()));
                live.push(object.resized(size(&mut random)));
            }
            _ => live.swap_remove(random.below(live.len())).free(),
        }
    }
    live.into_iter().for_each(Filled::free);
}

/// The test runs at each rate, then with a changing rate, on several threads.
#[test]
fn content_survives() {
    child::isolated("content_survives", || {
        for rate in [1, 7, 512, 8192, 0] {
            rtprof::set_mem_profile_rate(rate);
            std::thread::scope(|scope| {
                (0..2).for_each(|seed| drop(scope.spawn(move || churn(seed, 10_000))));
            });
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working: Vec<_> = (10..12).map(|seed| scope.spawn(move || churn(seed, 20_000))).collect();
            let done = &done;
            scope.spawn(move || {
                let mut random = Random::new(3);
                while !done.load(Relaxed) {
                    rtprof::set_mem_profile_rate([0, 1, 500, 1 << 20][random.below(4)]);
                    std::thread::yield_now();
                }
            });
            let results: Vec<_> = working.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Relaxed);
            assert!(results.iter().all(Result::is_ok), "a thread found damage");
        });
        rtprof::set_mem_profile_rate(0);
        let totals = Profile::heap().totals_of("filled_object");
        assert!(totals[ALLOC_OBJECTS] > 1000, "it was sampled: {totals:?}");
        assert_eq!((totals[INUSE_OBJECTS], totals[INUSE_SPACE]), (0, 0), "every free was found");
    });
}

/// An allocation that fails leaves no record; a realloc that fails leaves the old object and its record.
#[test]
fn failures_leave_no_trace() {
    child::isolated("failures_leave_no_trace", || {
        rtprof::set_mem_profile_rate(1);
        let huge = isize::MAX as usize - 4096;
        for size in [100, 1 << 20] {
            let layout = Layout::from_size_align(size, 16).expect("it is small");
            let object = Filled::filled_object(layout, false, 5);
            let before = rtprof::mem_profile(true);
            let bytes = |records: &[rtprof::MemProfileRecord]| {
                records.iter().map(rtprof::MemProfileRecord::in_use_bytes).max()
            };
            let largest = bytes(&before);
            // SAFETY: the object is allocated with this layout; the sizes are valid, even if no allocator can grant
            // them.
            unsafe {
                assert!(realloc(object.pointer, layout, huge).is_null());
                let layout = Layout::from_size_align(huge, 16).expect("it is below isize::MAX");
                assert!(black_box(alloc(layout)).is_null() && black_box(alloc_zeroed(layout)).is_null());
            }
            let after = rtprof::mem_profile(true);
            assert!(bytes(&after) < Some(huge as i64) && largest < Some(huge as i64), "nothing so large");
            object.check(size);
            let in_use = Profile::heap().totals_of("filled_object");
            assert_eq!(in_use[INUSE_SPACE], size as i64, "the old object is still in use");
            object.free();
            let in_use = Profile::heap().totals_of("filled_object");
            assert_eq!(in_use[INUSE_SPACE], 0, "and its free is found");
        }
    });
}

/// An object that is reachable only through a sampled object is no leak. Under LeakSanitizer or Valgrind the child
/// fails at its end, if the object is taken for a leak.
#[test]
#[ignore = "for tools that look for leaks; ci/sanitizers.sh runs it"]
fn what_a_sampled_object_holds_is_no_leak() {
    struct Outer {
        _inner: Box<[u8; 4321]>,
    }
    static HELD: Mutex<Option<Box<Outer>>> = Mutex::new(None);
    child::isolated("what_a_sampled_object_holds_is_no_leak", || {
        let hold = || {
            rtprof::set_mem_profile_rate(0);
            let inner = Box::new([1; 4321]);
            rtprof::set_mem_profile_rate(1);
            let outer = Box::new(Outer { _inner: inner });
            rtprof::set_mem_profile_rate(0);
            *HELD.lock().expect("only this test has it") = Some(black_box(outer));
        };
        // A thread that ends, because the present stack still contains the inner object's address.
        std::thread::spawn(hold).join().expect("it ends well");
    });
}

/// A leaked object is reported, though our table contains the address of a large sampled object.
#[test]
#[ignore = "for LeakSanitizer; ci/sanitizers.sh runs it"]
fn a_leaked_large_object_is_reported() {
    const NAME: &str = "a_leaked_large_object_is_reported";
    if child::is(NAME, "") {
        rtprof::set_mem_profile_rate(1);
        let leak = || std::mem::forget(black_box(vec![1_u8; 1_234_567]));
        std::thread::spawn(leak).join().expect("it ends well");
        return;
    }
    let output = child::output(NAME, "", |_| {});
    let report = child::report(&output);
    assert!(!output.status.success() && report.contains("1234567 byte(s) leaked"), "{report}");
}

#[inline(never)]
fn objects_of_a_nested_one(nested: &ProfAlloc<ProfAlloc>) -> i64 {
    let mut made = 0;
    for size in [1, 40, 1000, 5000, 100_000, 3 << 20] {
        for align in [1, 16, 64, 4096] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            // SAFETY: the size is not 0, and the object is used with its layout until it is freed with the last one.
            unsafe {
                let object = nested.alloc_zeroed(layout);
                *object = 7;
                let object = nested.realloc(object, layout, size * 3);
                assert_eq!((object.addr() % align, *object), (0, 7));
                nested.dealloc(object, Layout::from_size_align(size * 3, align).expect("a layout"));
            }
            made += 2;
        }
    }
    made
}

/// Our docs advise against it. Some objects count twice, and each free is found.
#[test]
fn one_inside_another_breaks_nothing() {
    static NESTED: ProfAlloc<ProfAlloc> = ProfAlloc::new(ProfAlloc::system());
    child::isolated("one_inside_another_breaks_nothing", || {
        rtprof::set_mem_profile_rate(1);
        let made = objects_of_a_nested_one(&NESTED);
        let totals = Profile::heap().totals_of("objects_of_a_nested_one");
        assert_eq!((totals[INUSE_OBJECTS], totals[INUSE_SPACE]), (0, 0));
        assert!((made..=2 * made).contains(&totals[ALLOC_OBJECTS]), "{totals:?} of {made}");
    });
}
