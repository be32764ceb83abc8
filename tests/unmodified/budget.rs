//! Totals of waits while a budget leads to larger rates.
//!
//! The same load runs by turns with and without a budget. Without one every wait is recorded, so that is the control: by the
//! work that was done, both have the same waits. (They do not if a wait takes longer to begin because it is chosen: the event
//! then often comes before the thread sleeps.) The budgets are such that weights are about ten.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rtprof::{BlockKinds, BlockProfileRecord};
use test_support::child;
use test_support::contention::raised_to;
use test_support::until;

/// The rates of the turns with a budget.
const BLOCK_NANOS: u64 = 10_000;
const MUTEX_FRACTION: i64 = 1;
/// The pieces of work of a turn.
const WORK: u64 = 15_000;
const TURNS: usize = 3;

/// Threads that work until it is dropped.
struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    done: AtomicU64,
    jobs: Mutex<u64>,
    has_jobs: Condvar,
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        spin_loop();
    }
}

impl Load {
    fn of<const N: usize>(works: [fn(&Shared); N]) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = works.map(|work| {
            let shared = shared.clone();
            spawn(move || {
                while !shared.is_over.load(Ordering::Relaxed) {
                    work(&shared);
                }
            })
        });
        Self { shared, threads: threads.into() }
    }

    /// Idle workers, which all wait for one condition, and a thread that has a short job for one of them.
    fn pool() -> Self {
        fn job(shared: &Shared) {
            *shared.jobs.lock().unwrap() += 1;
            shared.has_jobs.notify_one();
            spin(Duration::from_micros(40));
        }
        fn worker(shared: &Shared) {
            let mut jobs = shared.jobs.lock().unwrap();
            while *jobs == 0 && !shared.is_over.load(Ordering::Relaxed) {
                jobs = shared.has_jobs.wait(jobs).unwrap();
            }
            *jobs = jobs.saturating_sub(1);
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
        Self::of([job, worker, worker, worker, worker, worker, worker, worker, worker])
    }

    /// Threads that want the same lock.
    fn lock() -> Self {
        fn holder(shared: &Shared) {
            let mut held = shared.jobs.lock().unwrap();
            spin(Duration::from_micros(20));
            *held += 1;
            drop(held);
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
        Self::of([holder; 4])
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // With the lock, so that no worker is between its look and its wait.
        let held = self.shared.jobs.lock().unwrap();
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(held);
        self.shared.has_jobs.notify_all();
        self.threads.drain(..).for_each(|thread| thread.join().expect("the load is well"));
    }
}

/// Of some time: how often threads have slept, the waits and ticks in the block and in the mutex profile, and the seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    slept: f64,
    waits: [f64; 2],
    ticks: [f64; 2],
    seconds: f64,
}

impl Sums {
    fn until_now(begin: Instant) -> Self {
        // SAFETY: all zeros are a valid value of the structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to that structure.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
        let profiles = [rtprof::block_profile(), rtprof::mutex_profile()];
        let sum = |value: fn(&BlockProfileRecord) -> i64| {
            profiles.each_ref().map(|records| records.iter().map(|record| value(record) as f64).sum())
        };
        Self {
            slept: usage.ru_nvcsw as f64,
            waits: sum(|record| record.count),
            ticks: sum(|record| record.cycles),
            seconds: begin.elapsed().as_secs_f64(),
        }
    }

    /// Adds what is new in `after`.
    fn add(&mut self, before: &Self, after: &Self) {
        self.slept += after.slept - before.slept;
        self.seconds += after.seconds - before.seconds;
        for at in 0..2 {
            self.waits[at] += after.waits[at] - before.waits[at];
            self.ticks[at] += after.ticks[at] - before.ticks[at];
        }
    }
}

/// Lets the load do its work, and adds what was recorded to `sums`.
fn turn(load: &Load, sums: &mut Sums) {
    let begin = Instant::now();
    let before = Sums::until_now(begin);
    let end = load.shared.done.load(Ordering::Relaxed) + WORK;
    let mut own_sleeps = 0.0;
    until("the work is done", || {
        own_sleeps += 1.0;
        load.shared.done.load(Ordering::Relaxed) >= end
    });
    sums.add(&before, &Sums::until_now(begin));
    sums.slept -= own_sleeps;
}

/// Runs the load, and returns the sums without and with a budget.
fn exact_and_governed(load: &Load, budget: f64) -> [Sums; 2] {
    let (mut exact, mut governed) = (Sums::default(), Sums::default());
    for _ in 0..TURNS {
        rtprof::clear_profile_budget();
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(1);
        turn(load, &mut exact);
        rtprof::set_block_profile_rate(BLOCK_NANOS);
        rtprof::set_mutex_profile_fraction(MUTEX_FRACTION);
        rtprof::set_profile_budget(budget).expect("it is a budget");
        turn(load, &mut governed);
    }
    [exact, governed]
}

/// The least weight that counts as raised: with less most waits would be recorded, and totals true without any care.
const LEAST_WEIGHT: f64 = 3.0;

/// Returns the ratios of the totals with a budget to those without, each with what it may differ from 1: of waits, of the block
/// and the mutex profile, and of their ticks.
fn ratios(load: fn() -> Load, mut budget: f64) -> [[(f64, f64); 2]; 2] {
    rtprof::set_block_profile_kinds(BlockKinds::SYNC);
    let load = load();
    let ([exact, governed], weights) = loop {
        let sums = exact_and_governed(&load, budget);
        let weights = [("block", BLOCK_NANOS as f64), ("mutex", MUTEX_FRACTION as f64)]
            .map(|(profile, set)| raised_to(profile).unwrap_or_default() / set);
        println!("{budget} {weights:?} {sums:?}");
        if weights.iter().all(|weight| *weight >= LEAST_WEIGHT) {
            break (sums, weights);
        }
        // Beside other programs there are fewer waits in the same processor time, and the budget may suffice for all.
        budget /= 4.0;
        assert!(budget > 0.001, "no budget raises the rates");
    };
    drop(load);
    let ratio = |of: fn(&Sums, usize) -> f64| {
        [0, 1].map(|at| {
            // A wait that is recorded with the weight w, or not, has the variance w - 1.
            let sigma = (weights[at] / governed.slept).sqrt();
            (of(&governed, at) / of(&exact, at), 0.1 + 6.0 * sigma)
        })
    };
    [ratio(|sums, at| sums.waits[at] / sums.slept), ratio(|sums, at| sums.ticks[at] / sums.seconds)]
}

fn assert_near(ratios: [(f64, f64); 2], what: &str) {
    for ((ratio, most), profile) in ratios.into_iter().zip(["block", "mutex"]) {
        assert!((ratio - 1.0).abs() < most, "{what} in {profile}: {ratio} times, and not 1 within {most}");
    }
}

#[test]
fn totals_stay_true_under_a_budget() {
    child::isolated_as("totals_stay_true_under_a_budget", "idle workers", || {
        let [waits, ticks] = ratios(Load::pool, 10.0);
        assert_near(waits, "waits");
        assert_near(ticks, "ticks");
    });
    child::isolated_as("totals_stay_true_under_a_budget", "a contended lock", || {
        let [waits, _] = ratios(Load::lock, 2.0);
        assert_near(waits, "waits");
    });
}
