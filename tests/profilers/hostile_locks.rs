//! Contended locks where a hook could be unprepared: before main, in dying threads, in storms of threads, beside
//! exports, and over a fork.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rtprof::sync::{Mutex, RawMutex, RwLock};
use rtprof_runtime::goroutine;
use test_support::address_space::resident;
use test_support::contention::{Seen, queue, record_everything};
use test_support::fork;
use test_support::profile::Profile;
use test_support::random::Random;
use test_support::{Background, PATIENCE, child, dying, stress, until};

type Adapter = lock_api::Mutex<RawMutex<parking_lot::RawMutex>, u64>;

/// Waits in vain for a lock that the same thread holds: the shortest way through the whole of a slow path.
#[inline(never)]
fn wait_in_vain(lock: &Mutex<u64>, timeout: Duration) {
    let held = lock.lock();
    assert!(lock.try_lock_for(timeout).is_none(), "it is held");
    drop(held);
    black_box(());
}

/// The number of waits that constructors have completed.
static EARLY: AtomicU64 = AtomicU64::new(0);
static EARLY_LOCK: Mutex<u64> = Mutex::new(0);

/// The constructors run in every process of this program, so they act only in this test's child.
const BEFORE_MAIN: &str = "hostile_locks::before_main";

extern "C" fn very_early() {
    if !child::is_before_main(BEFORE_MAIN) {
        return;
    }
    wait_early();
}

extern "C" fn early() {
    if !child::is_before_main(BEFORE_MAIN) {
        return;
    }
    wait_early();
    // Then for a lock that another thread holds.
    let held = EARLY_LOCK.lock();
    let waiting = std::thread::spawn(|| *EARLY_LOCK.lock() += 1);
    sleep(Duration::from_millis(1));
    drop(held);
    EARLY.fetch_add(u64::from(waiting.join().is_ok()), Relaxed);
}

fn wait_early() {
    wait_in_vain(&EARLY_LOCK, Duration::from_micros(100));
    static RW: RwLock<u64> = RwLock::new(0);
    let reading = RW.read();
    assert!(RW.try_write_for(Duration::from_micros(100)).is_none());
    drop(reading);
    static FOREIGN: Adapter = lock_api::Mutex::new(0);
    let held = FOREIGN.lock();
    assert!(FOREIGN.try_lock_for(Duration::from_micros(100)).is_none());
    drop(held);
    EARLY.fetch_add(3, Relaxed);
}

/// Runs before every constructor without a priority, the profiler's own among them.
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
        assert_eq!(EARLY.load(Relaxed), 7, "the constructors ran");
        assert_eq!(*EARLY_LOCK.lock(), 1);
        assert_eq!(rtprof::block_profile().len() + rtprof::mutex_profile().len(), 0, "it was off");
        record_everything();
        wait_in_vain(&EARLY_LOCK, Duration::from_millis(1));
        assert_eq!(Seen::now().blocked("wait_in_vain").count, 1, "it works after all that");
    });
}

static DESTRUCTIONS: AtomicI64 = AtomicI64::new(0);

/// Waits twice.
#[inline(never)]
fn in_a_destructor() {
    DESTRUCTIONS.fetch_add(1, Relaxed);
    let short = Duration::from_micros(100);
    wait_in_vain(&Mutex::new(0), short);
    let foreign = Adapter::new(0);
    let held = foreign.lock();
    assert!(foreign.try_lock_for(short).is_none(), "it is held");
    drop(held);
}

/// Each wait of a dying thread is an event, even the last one, and leaves no goroutine behind.
#[test]
fn thread_destructors() {
    child::isolated("thread_destructors", || {
        const THREADS: i64 = 50;
        record_everything();
        (0..THREADS).for_each(|_| dying::run(in_a_destructor));
        let destructions = DESTRUCTIONS.load(Relaxed);
        assert_eq!(
            destructions,
            THREADS * dying::DESTRUCTORS,
            "all destructors ran, those of the key in all rounds"
        );
        assert_eq!(Seen::now().blocked("in_a_destructor").count, 2 * destructions, "each wait is an event");
        // The thread that looks up names may still run.
        let left: Vec<_> = goroutine::all().filter(|live| !live.name.starts_with("rtprof-")).collect();
        assert!(left.len() <= 2, "these are left, and this test's is one of them: {left:#?}");
    });
}

#[inline(never)]
fn contended_once(lock: &Mutex<u64>) {
    let mut guard = lock.lock();
    *guard += 1;
    std::thread::yield_now();
    drop(guard);
    black_box(());
}

/// Threads whose first wait registers them, and which end right after it. The memory kept grows with stacks and with
/// threads that live at one time, not with events or threads.
#[test]
fn storms_of_threads_that_exit_after_a_wait() {
    const AT_ONCE: usize = 24;
    child::isolated("storms_of_threads_that_exit_after_a_wait", || {
        record_everything();
        let lock = Mutex::new(0);
        let threads_there = || std::fs::read_dir("/proc/self/task").expect("tests run on Linux").count();
        let before = threads_there();
        let storm = || {
            // The kernel ends a thread some time after the scope has ended.
            until("the last storm is over", || threads_there() <= before);
            scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        wait_in_vain(&Mutex::new(0), Duration::from_micros(1));
                        contended_once(&lock);
                    });
                }
            });
        };
        (0..20).for_each(|_| storm());
        let (slots, memory, records) = (goroutine::slots_made(), resident(), rtprof::block_profile().len());
        let (started, mut threads) = (Instant::now(), 0);
        while started.elapsed() < stress() / 2 || threads < 3000 {
            storm();
            threads += AT_ONCE;
        }
        let grown = resident().saturating_sub(memory);
        println!("{threads} threads, {slots} slots, then {}, {grown} bytes more", goroutine::slots_made());
        // All threads of a storm may have been alive at one time, which was true of no storm before it.
        assert!(goroutine::slots_made() <= slots + AT_ONCE, "{} slots", goroutine::slots_made());
        assert!(rtprof::block_profile().len() <= records + 8, "no new stacks");
        // 3000 threads at 1 KiB each would take as much.
        assert!(grown < 3 << 20, "{grown} bytes more after {threads} threads");
        let waits = Seen::now().blocked("wait_in_vain");
        assert_eq!(waits.count as usize, threads + 20 * AT_ONCE, "every one of them is counted");
        assert_eq!(*lock.lock() as usize, threads + 20 * AT_ONCE);
    });
}

/// Profiles are written and read while everything changes: each is consistent, and no count decreases.
#[test]
fn exports_beside_contention() {
    child::isolated("exports_beside_contention", || {
        record_everything();
        let (mutex, rw, foreign) = (Mutex::new(0), RwLock::new(0), Adapter::new(0));
        let background = Background::default();
        scope(|scope| {
            let _ends = background.ends_here();
            for seed in 0..8 {
                let (mutex, rw, foreign, background) = (&mutex, &rw, &foreign, &background);
                scope.spawn(move || {
                    let random = RefCell::new(Random::new(seed));
                    background.repeat(|| match random.borrow_mut().below(5) {
                        0 => drop(rw.read()),
                        1 => *rw.write() += 1,
                        2 => *foreign.lock() += 1,
                        3 => drop(mutex.try_lock_for(Duration::from_micros(20))),
                        _ => contended_once(mutex),
                    });
                });
            }
            let (started, mut exports) = (Instant::now(), 0);
            let mut last = [(0, 0); 2];
            let is_counted = |last: &[(i64, i64)]| last.iter().all(|&(count, nanos)| count > 0 && nanos > 0);
            // On a busy machine the first wait may come after many exports.
            while started.elapsed() < stress() / 2
                || exports < 5
                || !is_counted(&last) && started.elapsed() < PATIENCE
            {
                for (profile, last) in ["block", "mutex"].into_iter().zip(&mut last) {
                    let mut bytes = Vec::new();
                    let lookup = rtprof::pprof::lookup(profile).expect("it is built in");
                    lookup.write_to(&mut bytes, 0).expect("a vector takes everything");
                    let [count, nanos, ..] = Profile::read(&bytes).totals_of("");
                    assert!(count >= last.0 && nanos >= last.1, "{profile}: {count} {nanos} after {last:?}");
                    *last = (count, nanos);
                    lookup.write_to(&mut std::io::sink(), 1).expect("a sink takes everything");
                }
                exports += 1;
            }
            assert!(is_counted(&last), "{last:?}");
            println!("{exports} exports");
        });
    });
}

/// Returns the parking_lot_core queue of a lock, as far as it matters here. parking_lot_core's queues have their own
/// locks, and one of them may be held when the process forks: that of the queue in which other threads wait. In the
/// child it stays held, so the child must not wait for a lock whose address maps to the same queue. Locks with
/// different results have different queues: parking_lot_core uses the highest bits of this product, at least one of
/// them.
fn queue_of(lock: &Mutex<u64>) -> usize {
    (&raw const *lock as usize).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63
}

fn fresh_lock(other_than: &Mutex<u64>) -> Box<Mutex<u64>> {
    let mut tried = Vec::new();
    loop {
        let lock = Box::new(Mutex::new(0));
        if queue_of(&lock) != queue_of(other_than) {
            return lock;
        }
        tried.push(lock);
    }
}

#[inline(never)]
fn contend_in_the_child(lock: &Mutex<u64>) {
    scope(|scope| {
        let guard = lock.lock();
        queue(scope, || *lock.lock() += 1);
        drop(guard);
    });
    black_box(());
}

fn in_the_child(contended: &Mutex<u64>, export: bool) {
    // The lock has no waiter, so no queue is accessed.
    *Mutex::new(0).lock() += 1;
    let lock = fresh_lock(contended);
    let totals = |records: Vec<rtprof::BlockProfileRecord>| records.iter().map(|r| r.count).sum::<i64>();
    let before = (totals(rtprof::block_profile()), totals(rtprof::mutex_profile()));
    contend_in_the_child(&lock);
    let after = (totals(rtprof::block_profile()), totals(rtprof::mutex_profile()));
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}: the child records");
    assert_eq!(*lock.lock(), 1);
    if export {
        let seen = Seen::now();
        assert!(seen.charged("contend_in_the_child").count > 0 && seen.blocked("").count > 0);
    }
}

/// Forks, and fails unless the child ends well and in time.
fn fork_once(contended: &Mutex<u64>, round: usize) {
    let export = round.is_multiple_of(8);
    fork::in_a_child(&format!("round {round} (export: {export})"), || in_the_child(contended, export));
}

#[test]
fn fork_while_threads_contend() {
    fork::isolated("fork_while_threads_contend", "", || {
        record_everything();
        let contended = Mutex::new(0);
        // As many threads as will ever be in a child, so that the table of queues need not grow there: growing takes
        // the locks of all queues of parking_lot_core.
        const AT_ONCE: usize = 40;
        let all = std::sync::Barrier::new(AT_ONCE);
        scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    wait_in_vain(&Mutex::new(0), Duration::from_millis(1));
                    all.wait();
                });
            }
        });
        let background = Background::default();
        scope(|scope| {
            let background = &background;
            let _ends = background.ends_here();
            for _ in 0..8 {
                scope.spawn(|| background.repeat(|| contended_once(&contended)));
            }
            scope.spawn(|| background.repeat(|| drop(black_box(rtprof::mutex_profile()))));
            let (started, mut rounds) = (Instant::now(), 0);
            while started.elapsed() < stress() || rounds < 16 {
                fork_once(&contended, rounds);
                rounds += 1;
            }
            println!("{rounds} forks");
        });
    });
}
