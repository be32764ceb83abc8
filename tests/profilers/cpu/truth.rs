//! Known facts about a program appear in its profile.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;

use rtprof::pprof::{self, CpuProfileOptions, CpuSource};
use test_support::processor::{burn, used};
use test_support::profile::Sample;
use test_support::{child, sample_types};

use super::work::{SOURCES, by, profiled, samples_of, sum};

#[inline(never)]
fn half(time: Duration) -> Duration {
    burn(time)
}

#[inline(never)]
fn third(time: Duration) -> Duration {
    burn(time)
}

#[inline(never)]
fn rest(time: Duration) -> Duration {
    burn(time)
}

/// Runs the three in turn, and returns the total time of each. The lengths of the slices are unrelated to the period.
fn shares(rounds: u32) -> [Duration; 3] {
    let mut all = [Duration::ZERO; 3];
    for _ in 0..rounds {
        all[0] += half(Duration::from_micros(5170));
        all[1] += third(Duration::from_micros(3110));
        all[2] += rest(Duration::from_micros(2030));
    }
    all
}

/// Returns how far a count of samples may be from the truth: 6 sigma of a binomial distribution, as if each sample were
/// drawn independently (one run in 5e8); samples at equal distances are nearer. A sample of a timer stands for `weight`
/// periods.
fn tolerance(total: f64, share: f64, weight: f64) -> f64 {
    6.0 * (total * share * (1.0 - share) * weight).sqrt() + 2.0 * weight
}

/// Computes until this thread has used `end` of processor time in total.
#[inline(always)]
fn burn_until(end: Duration) {
    while used() < end {
        (0..200_u32).for_each(|i| _ = black_box(i.wrapping_mul(i)));
    }
}

#[inline(never)]
fn begins_a_round(end: Duration) {
    black_box("begins");
    burn_until(end);
}

#[inline(never)]
fn goes_on(end: Duration) {
    black_box("goes on");
    burn_until(end);
}

#[inline(never)]
fn ends_it(end: Duration) {
    black_box("ends");
    burn_until(end);
}

/// A program that does the same in each period is not always sampled at the same place.
#[test]
fn rounds_of_a_period_have_their_shares() {
    child::isolated("rounds_of_a_period_have_their_shares", || {
        const ROUNDS: u32 = 400;
        let period = Duration::from_millis(1);
        let work = || {
            let start = used();
            for round in (0..ROUNDS).map(|round| start + period * round) {
                begins_a_round(round + period / 2);
                goes_on(round + period * 8 / 10);
                ends_it(round + period);
            }
        };
        let ((), profile, _) = profiled(by(CpuSource::Perf, 1000), work);
        for (function, share) in [("begins_a_round", 0.5), ("goes_on", 0.3), ("ends_it", 0.2)] {
            let found = samples_of(&profile, &format!("truth::{function}")) as f64;
            let (total, due) = (f64::from(ROUNDS), f64::from(ROUNDS) * share);
            let within = tolerance(total, share, 1.0);
            println!("{function}: {found} of {due}");
            assert!((found - due).abs() <= within, "{function}: {found} of {due}");
        }
    });
}

#[test]
fn functions_have_their_shares() {
    for (source, weight) in SOURCES.into_iter().zip([1.0, 10.0]) {
        child::isolated_as("functions_have_their_shares", &format!("{source:?}"), || {
            let (took, profile, _) = profiled(by(source, 1000), || shares(40));
            let due: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1000.0).collect();
            let total: f64 = due.iter().sum();
            for (function, due) in ["half", "third", "rest"].into_iter().zip(due) {
                let found = samples_of(&profile, &format!("truth::{function}")) as f64;
                let within = tolerance(total, due / total, weight);
                assert!((found - due).abs() <= within, "{function}: {found} of {due}, {source:?}");
            }
            assert_eq!(profile.sample_types(), sample_types::of("profile"));
            assert_eq!(profile.period, 1_000_000);
            let kind = profile.period_type.clone().unwrap();
            assert_eq!((profile.text(kind.kind), profile.text(kind.unit)), ("cpu", "nanoseconds"));
            let (count, nanos) = sum(&profile.samples());
            assert_eq!(nanos, count * profile.period);
            assert!(profile.duration_nanos as f64 >= took.iter().sum::<Duration>().as_nanos() as f64);
        });
    }
}

#[inline(always)]
fn inlined(time: Duration) -> Duration {
    burn(time)
}

#[inline(never)]
fn around_inlined() {
    black_box(inlined(Duration::from_millis(60)));
}

#[inline(never)]
fn recursive(depth: u32) {
    if depth == 0 {
        black_box(burn(Duration::from_millis(60)));
    } else {
        recursive(depth - 1);
    }
    black_box(depth);
}

#[test]
fn inlined_and_recursive_functions_are_there() {
    child::isolated("inlined_and_recursive_functions_are_there", || {
        let work = || {
            around_inlined();
            recursive(30);
        };
        let ((), profile, _) = profiled(by(CpuSource::Auto, 1000), work);
        let names =
            |sample: &Sample| sample.frames.iter().map(|frame| frame.function.clone()).collect::<Vec<_>>();
        // Among the samples inside the function: a few hit the call itself, before or after it.
        let within = profile.samples_of("truth::around_inlined");
        let with_inlined = within.iter().filter(|sample| {
            let names = names(sample);
            let inlined = names.iter().position(|name| name.ends_with("truth::inlined"));
            inlined.is_some_and(|at| names[at + 1].ends_with("truth::around_inlined"))
        });
        let (found, all) = (sum(with_inlined).0, sum(&within).0);
        assert!(all > 30 && found * 10 >= all * 9, "{found} of {all}");
        let deep = profile.samples_of("truth::recursive");
        let depth =
            |sample: &Sample| names(sample).iter().filter(|name| name.ends_with("truth::recursive")).count();
        let found = sum(deep.iter().filter(|sample| depth(sample) == 31)).0;
        let all = sum(&deep).0;
        assert!(all > 30 && found * 10 >= all * 9, "{found} of {all}");
    });
}

#[inline(never)]
fn copies(time: Duration, from: &[u8], to: &mut [u8]) {
    let start = used();
    while used() - start < time {
        for _ in 0..20 {
            to.copy_from_slice(black_box(from));
            black_box(&mut *to);
        }
    }
}

#[inline(never)]
fn allocates(time: Duration) {
    let layout = Layout::from_size_align(100_000, 16).unwrap();
    let start = used();
    while used() - start < time {
        for _ in 0..200 {
            // SAFETY: allocated with this layout, and freed once.
            unsafe {
                let object = black_box(alloc(layout));
                object.write(1);
                dealloc(object, layout);
            }
        }
    }
}

#[inline(never)]
fn asks_the_kernel(time: Duration) {
    let start = used();
    while used() - start < time {
        for _ in 0..100 {
            // SAFETY: a call that fails.
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/nowhere/at/all".as_ptr(), 0) };
        }
    }
}

/// Samples whose leaf is in the C library belong to the functions of the program that called it.
///
/// A sample of a timer stands for the time since the one before, part of which another function may have had. On a busy
/// machine, where the kernel's ticks seldom hit a thread, that is tens of milliseconds at each change of functions,
/// however long they run: more than a tenth of a short time, and less of a long one.
#[test]
fn time_in_the_c_library_is_its_callers() {
    for (source, attempts) in SOURCES.into_iter().zip([1, 6]) {
        child::isolated_as("time_in_the_c_library_is_its_callers", &format!("{source:?}"), || {
            let mut wrong = String::new();
            for attempt in 0..attempts {
                wrong = wrong_shares(source, Duration::from_millis(100 << attempt));
                if wrong.is_empty() {
                    return;
                }
            }
            panic!("{wrong}");
        });
    }
}

/// Lets three functions call the C library for this time each. Returns which have a wrong number of samples.
fn wrong_shares(source: CpuSource, time: Duration) -> String {
    let (from, mut to) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    let mut times = [Duration::ZERO; 3];
    let work = || {
        let start = used();
        copies(time, &from, &mut to);
        let copied = used();
        allocates(time);
        let allocated = used();
        asks_the_kernel(time);
        times = [copied - start, allocated - copied, used() - allocated];
    };
    let ((), profile, _) = profiled(by(source, 1000), work);
    let mut wrong = String::new();
    for (function, time) in ["copies", "allocates", "asks_the_kernel"].into_iter().zip(times) {
        let due = time.as_secs_f64() * 1000.0;
        let found = samples_of(&profile, &format!("truth::{function}")) as f64;
        if (found - due).abs() > 20.0 + due / 10.0 {
            wrong += &format!("{function}: {found} of {due}, {source:?}; ");
        }
        let whole = |sample: &&Sample| sample.has("main") || sample.has("time_in_the_c_library");
        let samples = profile.samples_of(&format!("truth::{function}"));
        assert_eq!(samples.iter().filter(whole).count(), samples.len(), "each goes on to the test");
    }
    wrong
}

#[test]
fn labels_of_code_and_of_threads_are_there() {
    child::isolated("labels_of_code_and_of_threads_are_there", || {
        let labelled = || {
            let work = || black_box(half(Duration::from_millis(50)));
            pprof::do_with(pprof::labels(&[("request", "a")]), work);
            pprof::do_with(pprof::labels(&[("request", "b")]), work);
        };
        let taken = |options| {
            // A thread of std, which exists from before the profile.
            let (begin, begins) = mpsc::channel::<()>();
            let of_std = std::thread::Builder::new().name("unlabelled".into()).spawn(move || {
                begins.recv().ok();
                half(Duration::from_millis(50))
            });
            profiled(options, move || {
                drop(begin);
                let ours = rtprof::thread::Builder::new().name("labelled".into()).spawn(labelled);
                of_std.unwrap().join().unwrap();
                ours.unwrap().join().unwrap();
            })
        };
        let ((), profile, _) = taken(by(CpuSource::Auto, 1000));
        let of = |label: Option<&str>| {
            let samples = profile.samples_of("truth::half");
            sum(samples.iter().filter(|sample| sample.labels.get("request").map(String::as_str) == label)).0
        };
        for label in [Some("a"), Some("b"), None] {
            assert!((30..=80).contains(&of(label)), "{label:?}: {}", of(label));
        }
        assert!(
            profile.samples().iter().all(|sample| !sample.labels.contains_key("thread id")),
            "threads are not told apart"
        );

        let options = CpuProfileOptions { thread_labels: true, ..by(CpuSource::Auto, 1000) };
        let ((), profile, _) = taken(options);
        for name in ["labelled", "unlabelled"] {
            let samples = profile.samples();
            let own =
                samples.iter().filter(|sample| sample.labels.get("thread name").is_some_and(|of| of == name));
            let (found, _) = sum(own.clone());
            assert!(found >= 40, "{name}: {found}");
            let ids: HashSet<&String> = own.filter_map(|sample| sample.labels.get("thread id")).collect();
            assert!(
                ids.len() == 1 && ids.iter().all(|id| id.parse::<u32>().is_ok_and(|id| id > 1)),
                "{name}: {ids:?}"
            );
        }
    });
}
