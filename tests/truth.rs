//! The written profile agrees with exact totals.
//!
//! A counting allocator *around* ours sees every call, including those that the pool serves. The workload is identified
//! by its function's name in the stack, so stacks, names, scaling and frees are all checked: at rates 1 (exact), 4 KiB,
//! 64 KiB and 512 KiB (within 6 sigma), for objects of 16 B, 1 KiB, 100 KiB and 8 MiB and a mix, also with a change of
//! the rate half-way.
//!
//! An object of size s is sampled with p = 1 - e^(-s/rate), independently of the others, and counts 1/p objects. Over n
//! objects the estimate has the variance n(1-p)/p. Counts are chosen so that about 150 samples are expected; then 6
//! sigma are exceeded by chance once in 10^8 checks. If hardly any object is missed the estimate is not normal: of 8
//! MiB objects at 512 KiB one in 9 million is not sampled, which would be many sigma at once in 1.7 of 10^5 checks. So
//! in this case one object may be missed; two are missed once in 10^9 checks.
#![cfg(feature = "pprof")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use test_support::child;
use test_support::inner::{INNER, Inner};
use test_support::profile::{ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE, Profile};
use test_support::random::Random;
use test_support::workload;

const SIZES: [usize; 4] = [16, 1 << 10, 100 << 10, 8 << 20];
const RATES: [usize; 4] = [1, 4 << 10, 64 << 10, 512 << 10];

struct Counting(rtprof::ProfAlloc<Inner>);

#[global_allocator]
static ALLOC: Counting = Counting(rtprof::ProfAlloc::new(INNER));

/// Exact counts for one size; the last entry counts all other sizes.
struct Exact {
    allocated: AtomicI64,
    freed: AtomicI64,
    allocated_bytes: AtomicI64,
}

static EXACT: [Exact; SIZES.len() + 1] = [const {
    Exact { allocated: AtomicI64::new(0), freed: AtomicI64::new(0), allocated_bytes: AtomicI64::new(0) }
}; SIZES.len() + 1];

/// Whether the calls of all threads are counted, and not only those of the workload.
static EVERYTHING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set while this thread is inside the workload's own calls.
    static MEASURED: Cell<bool> = const { Cell::new(false) };
}

fn class(size: usize) -> usize {
    SIZES.iter().position(|&known| known == size).unwrap_or(SIZES.len())
}

impl Counting {
    fn counts() -> bool {
        EVERYTHING.load(Relaxed) || MEASURED.get()
    }

    fn allocated(size: usize) {
        if Self::counts() {
            let exact = &EXACT[class(size)];
            exact.allocated.fetch_add(1, Relaxed);
            exact.allocated_bytes.fetch_add(size as i64, Relaxed);
        }
    }

    fn freed(size: usize) {
        if Self::counts() {
            EXACT[class(size)].freed.fetch_add(1, Relaxed);
        }
    }
}

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::allocated(layout.size());
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::allocated(layout.size());
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::freed(layout.size());
        Self::allocated(size);
        // SAFETY: the caller passes a pointer from the inner allocator with its layout, and a valid size.
        unsafe { self.0.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::freed(layout.size());
        // SAFETY: the caller passes a pointer from the inner allocator with its layout.
        unsafe { self.0.dealloc(pointer, layout) }
    }
}

/// An object of the workload, as an address, so that other threads can free it.
#[derive(Clone, Copy)]
struct Object {
    address: usize,
    size: usize,
    rate: usize,
}

impl Object {
    #[inline(never)]
    fn workload_of_truth(size: usize, rate: usize) -> Self {
        MEASURED.set(true);
        // SAFETY: the size is not 0.
        let address = black_box(unsafe { std::alloc::alloc(Self::layout(size)) }) as usize;
        MEASURED.set(false);
        assert_ne!(address, 0);
        Self { address, size, rate }
    }

    fn free(self) {
        MEASURED.set(true);
        // SAFETY: the object was allocated with this layout, and is freed once, because `self` is taken out of the
        // list.
        unsafe { std::alloc::dealloc(self.address as *mut u8, Self::layout(self.size)) };
        MEASURED.set(false);
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a small size is a layout")
    }
}

fn probability(size: usize, rate: usize) -> f64 {
    if rate <= 1 { 1.0 } else { -(-(size as f64) / rate as f64).exp_m1() }
}

/// Returns the number of objects that gives about 150 samples.
fn count(size: usize, rate: usize) -> usize {
    let least = if size > 1 << 20 { 16 } else { 200 };
    ((150.0 / probability(size, rate)) as usize).max(least)
}

/// Exact totals of a list of objects, and the variances of their estimates.
#[derive(Default)]
struct Expected {
    objects: f64,
    bytes: f64,
    objects_variance: f64,
    bytes_variance: f64,
    /// The expected number of misses among objects that are hardly ever missed, and the size of the largest of these.
    rare_misses: f64,
    rarely_missed: f64,
}

/// The number of expected misses below which a normal distribution does not apply.
const RARE: f64 = 1e-3;

impl Expected {
    fn of(objects: &[Object]) -> Self {
        let mut expected = Self::default();
        for object in objects {
            let (size, p) = (object.size as f64, probability(object.size, object.rate));
            expected.objects += 1.0;
            expected.bytes += size;
            expected.objects_variance += (1.0 - p) / p;
            expected.bytes_variance += size * size * (1.0 - p) / p;
            if p > 1.0 - RARE && p < 1.0 {
                expected.rare_misses += 1.0 - p;
                expected.rarely_missed = expected.rarely_missed.max(size);
            }
        }
        assert!(expected.rare_misses < RARE, "two misses would not be rare");
        expected
    }

    fn check(&self, what: &str, objects: i64, bytes: i64, samples: usize) {
        // A written value is a whole number: every sample may be off by a half after rounding, or by one after cutting
        // off. At rate 1 nothing is scaled, so nothing is rounded.
        let rounding = if self.bytes_variance == 0.0 { 0.0 } else { samples as f64 };
        let one_missed = if self.rarely_missed > 0.0 { 1.0 } else { 0.0 };
        for (unit, exact, estimate, variance, one_missed) in [
            ("objects", self.objects, objects, self.objects_variance, one_missed),
            ("bytes", self.bytes, bytes, self.bytes_variance, self.rarely_missed),
        ] {
            let (off, sigma) = ((estimate as f64 - exact).abs(), variance.sqrt());
            println!("{what} {unit}: exact {exact} profile {estimate} sigma {sigma:.1}");
            assert!(
                off <= 6.0 * sigma + rounding + one_missed,
                "{what} {unit}: the profile has {estimate}, exact is {exact}, sigma is {sigma}"
            );
        }
    }
}

/// Allocates `sizes` under each rate in turn, frees half, checks; frees the rest on other threads, and checks again.
fn check(sizes: &[usize], rates: &[usize]) {
    let mut random = Random::new(7);
    let (mut all, mut live) = (Vec::new(), Vec::new());
    for &rate in rates {
        rtprof::set_mem_profile_rate(rate);
        let mut plan: Vec<_> = sizes.iter().flat_map(|&s| std::iter::repeat_n(s, count(s, rate))).collect();
        for place in (1..plan.len()).rev() {
            plan.swap(place, random.below(place + 1));
        }
        for size in plan {
            let object = Object::workload_of_truth(size, rate);
            all.push(object);
            live.push(object);
            // Frees happen among the allocations, also of old objects.
            if random.below(2) == 0 {
                live.swap_remove(random.below(live.len())).free();
            }
        }
    }
    let sum = |field: fn(&Exact) -> &AtomicI64| EXACT.iter().map(|exact| field(exact).load(Relaxed)).sum();
    let (allocated, freed): (i64, i64) = (sum(|exact| &exact.allocated), sum(|exact| &exact.freed));
    assert_eq!(allocated, all.len() as i64, "the counting allocator saw every call");
    assert_eq!(allocated - freed, live.len() as i64, "the counting allocator saw every free");

    let profile = Profile::heap();
    let samples = profile.samples_of("workload_of_truth").len();
    let totals = profile.totals_of("workload_of_truth");
    Expected::of(&all).check("alloc", totals[ALLOC_OBJECTS], totals[ALLOC_SPACE], samples);
    Expected::of(&live).check("inuse", totals[INUSE_OBJECTS], totals[INUSE_SPACE], samples);

    let part = live.len().div_ceil(4);
    std::thread::scope(|scope| {
        for part in live.chunks(part) {
            scope.spawn(move || part.iter().for_each(|object| object.free()));
        }
    });
    // Exact, without a tolerance: the free of every sampled object is found.
    let after = Profile::heap().totals_of("workload_of_truth");
    let expected = [totals[ALLOC_OBJECTS], totals[ALLOC_SPACE], 0, 0];
    assert_eq!(after, expected, "all is freed: nothing is in use, and what was allocated stays");
}

fn at_every_rate(test: &str, sizes: &[usize]) {
    for rate in RATES {
        child::isolated_as(test, &rate.to_string(), || check(sizes, &[rate]));
    }
}

#[test]
fn sixteen_bytes() {
    at_every_rate("sixteen_bytes", &SIZES[..1]);
}

#[test]
fn one_kibibyte() {
    at_every_rate("one_kibibyte", &SIZES[1..2]);
}

#[test]
fn hundred_kibibytes() {
    at_every_rate("hundred_kibibytes", &SIZES[2..3]);
}

#[test]
fn eight_mebibytes() {
    at_every_rate("eight_mebibytes", &SIZES[3..]);
}

#[test]
fn mixed_sizes() {
    at_every_rate("mixed_sizes", &SIZES);
}

/// Each sample keeps the weight of the rate at which it was taken. Scaled by the last rate alone, the first half of the
/// fine-to-coarse case would count 128-fold.
#[test]
fn rate_changed_half_way() {
    for rates in [[4 << 10, 512 << 10], [512 << 10, 4 << 10], [1, 64 << 10], [64 << 10, 1]] {
        let scenario = format!("{rates:?}");
        child::isolated_as("rate_changed_half_way", &scenario, || check(&SIZES, &rates));
    }
}

/// At rate 1 the records contain every allocation of the process, on every thread: a hook that is skipped on some path
/// (zeroed, reallocated, over-aligned, on a new thread, on a thread that ends) shows here.
#[test]
fn rate_one_misses_nothing() {
    child::isolated("rate_one_misses_nothing", || {
        // The list of the first snapshot is an allocation too, unless it is empty, which depends on the samples from
        // the start of the process. This allocation is not counted, so it must not be sampled either.
        rtprof::set_mem_profile_rate(0);
        let before = rtprof::mem_profile(true);
        rtprof::set_mem_profile_rate(1);
        EVERYTHING.store(true, Relaxed);
        workload::every_kind();
        EVERYTHING.store(false, Relaxed);
        let after = rtprof::mem_profile(true);
        let objects = |records: &[rtprof::MemProfileRecord]| -> i64 {
            records.iter().map(|record| record.alloc_objects).sum()
        };
        let bytes = |records: &[rtprof::MemProfileRecord]| -> i64 {
            records.iter().map(|record| record.alloc_bytes).sum()
        };
        let exact: i64 = EXACT.iter().map(|exact| exact.allocated.load(Relaxed)).sum();
        let exact_bytes: i64 = EXACT.iter().map(|exact| exact.allocated_bytes.load(Relaxed)).sum();
        assert!(exact > 1000, "the workload allocates");
        assert_eq!(objects(&after) - objects(&before), exact);
        assert_eq!(bytes(&after) - bytes(&before), exact_bytes);
    });
}
