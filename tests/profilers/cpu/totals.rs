//! The sum of all samples is the processor time that each thread used, whatever its work and whenever it began.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rtprof::pprof::{CpuProfileOptions, CpuSource};
use test_support::processor::{ThreadClock, burn, used, used_by_all};
use test_support::profile::Profile;
use test_support::{child, descriptors, signals, until};

use super::work::{SOURCES, by, profiled, sum};

fn samples_of_thread(profile: &Profile, name: &str) -> i64 {
    let samples = profile.samples();
    sum(samples.iter().filter(|sample| sample.labels.get("thread name").is_some_and(|of| of == name))).0
}

fn by_thread(source: CpuSource, hz: u32) -> CpuProfileOptions {
    CpuProfileOptions { thread_labels: true, ..by(source, hz) }
}

/// A thread that waits before and after its work, so that it exists before the profile and after it.
struct Waiting {
    name: &'static str,
    clock: ThreadClock,
    begin: mpsc::Sender<()>,
    done: mpsc::Receiver<Duration>,
    /// The thread ends when this is dropped.
    _end: mpsc::Sender<()>,
}

impl Waiting {
    fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Self {
        Self::prepared(name, || (), work)
    }

    /// Starts a thread that runs `prepare` before the profile begins.
    fn prepared(
        name: &'static str,
        prepare: impl FnOnce() + Send + 'static,
        work: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (begin, begins) = mpsc::channel();
        let (is_done, done) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let run = move || {
            prepare();
            ready.send(ThreadClock::own()).ok();
            begins.recv().ok();
            let start = used();
            work();
            is_done.send(used() - start).ok();
            ends.recv().ok();
        };
        thread::Builder::new().name(name.into()).spawn(run).unwrap();
        Self { name, clock: is_ready.recv().unwrap(), begin, done, _end: end }
    }
}

/// Returns how many periods a thread may have used since the last signal of its timer, or was granted for that: docs/cpu.md.
/// A tick of the kernel finds a thread later that ran in bursts or lost its core.
fn last_gap(hz: u32, source: CpuSource) -> f64 {
    if source == CpuSource::Timers { f64::from(hz) * 0.02 } else { 0.0 }
}

/// Asserts that the samples of a thread lie between two bounds. The lower bound is the time that the work used, and the
/// upper bound the time that the thread used from before the profile until after it: on a busy machine the thread uses
/// some milliseconds to begin and to wait.
#[track_caller]
fn assert_between(name: &str, found: i64, times: (Duration, Duration), hz: u32, source: CpuSource) {
    if let Err(wrong) = is_between(name, found, times, hz, source) {
        panic!("{wrong}");
    }
}

fn is_between(
    name: &str,
    found: i64,
    (work, whole): (Duration, Duration),
    hz: u32,
    source: CpuSource,
) -> Result<(), String> {
    let [least, most] = [work, whole].map(|time| time.as_secs_f64() * f64::from(hz));
    // The tolerance for a beginning and an end within a period, and for a bit of other work.
    let (found, within) = (found as f64, 3.0 + least / 50.0 + last_gap(hz, source));
    let is_right = found >= least - within && found <= most + within;
    is_right.then_some(()).ok_or_else(|| format!("{name}: {found} of {least} to {most}, {source:?}"))
}

#[test]
fn each_thread_has_its_time() {
    for source in SOURCES {
        for hz in [100, 1000] {
            child::isolated_as("each_thread_has_its_time", &format!("{source:?} {hz}"), || {
                let threads_have_their_time = || {
                    let (right, is_busy) = time_of_threads(source, hz);
                    // Where other programs take the cores, a tick finds a thread so seldom that the last gap may be longer.
                    right.map_or_else(|wrong| if is_busy { false } else { panic!("{wrong}") }, |()| true)
                };
                until("each thread has its time", threads_have_their_time);
            });
        }
    }
}

/// Runs threads with different work, and returns whether each has its time, and whether the one that computes all the time
/// waited for a core.
fn time_of_threads(source: CpuSource, hz: u32) -> (Result<(), String>, bool) {
    let (ended, has_ended) = mpsc::channel();
    let steady = move || {
        let start = Instant::now();
        let used = burn(Duration::from_millis(300));
        ended.send(start.elapsed() > used * 5 / 4).unwrap();
    };
    let bursts = |run: u64, rest: u64| {
        move || {
            for _ in 0..300 / (run + rest) {
                burn(Duration::from_millis(run));
                thread::sleep(Duration::from_millis(rest));
            }
        }
    };
    let threads = [
        Waiting::spawn("steady", steady),
        Waiting::spawn("half", bursts(5, 5)),
        Waiting::spawn("tenth", bursts(1, 9)),
    ];
    let before = threads.each_ref().map(|thread| thread.clock.used());
    let work = || {
        threads.iter().for_each(|thread| thread.begin.send(()).unwrap());
        threads.each_ref().map(|thread| thread.done.recv().unwrap())
    };
    let (used, profile, _) = profiled(by_thread(source, hz), work);
    let right = threads.iter().zip(used).zip(before).try_for_each(|((thread, work), before)| {
        let whole = thread.clock.used() - before;
        is_between(thread.name, samples_of_thread(&profile, thread.name), (work, whole), hz, source)
    });
    (right, has_ended.recv().unwrap())
}

#[inline(never)]
fn born_meanwhile() -> Duration {
    burn(Duration::from_millis(60))
}

/// Threads that rtprof starts attach themselves: no part of their lives is missed.
#[test]
fn threads_of_ours_are_there_from_their_birth() {
    for source in SOURCES {
        child::isolated_as("threads_of_ours_are_there_from_their_birth", &format!("{source:?}"), || {
            let (end, ends) = mpsc::channel::<()>();
            let ends = Mutex::new(ends);
            rtprof::thread::scope(|scope| {
                let ((work, clocks), profile, _) = profiled(by_thread(source, 1000), || {
                    let (done, is_done) = mpsc::channel();
                    for _ in 0..4 {
                        let (done, ends) = (done.clone(), &ends);
                        // The threads live until after the profile, because the time that their timers have missed by
                        // then is counted.
                        let run = move || {
                            done.send((born_meanwhile(), ThreadClock::own())).unwrap();
                            ends.lock().unwrap().recv().ok();
                        };
                        rtprof::thread::Builder::new().name("born".into()).spawn_scoped(scope, run).unwrap();
                    }
                    let of_each = (0..4).map(|_| is_done.recv().unwrap());
                    of_each.fold((Duration::ZERO, Vec::new()), |(work, mut clocks), (own, clock)| {
                        clocks.push(clock);
                        (work + own, clocks)
                    })
                });
                let whole: Duration = clocks.iter().map(|clock| clock.used()).sum();
                let [least, most] = [work, whole].map(|time| time.as_millis() as i64);
                // Each thread may be off at its beginning and end; last gaps differ, so that their sum of four is twice one.
                let within = 4 * 3 + (2.0 * last_gap(1000, source)) as i64;
                // A timer that fires after the work counts some of the work in the later code.
                let (own, found) =
                    (sum(&profile.samples_of("born_meanwhile")).0, samples_of_thread(&profile, "born"));
                assert!(
                    found >= least - within && found <= most + within && own * 2 >= least,
                    "{own} and {found} of {least} to {most}, {source:?}"
                );
                drop(end);
            });
        });
    }
}

/// Other threads are found within 50 ms, if the collector has a core then. Their earlier work is charged to their first
/// sample.
#[test]
fn other_threads_are_found() {
    child::isolated("other_threads_are_found", || {
        let work = || {
            let before = descriptors::open();
            let thread = thread::spawn(move || {
                let mut used = Duration::ZERO;
                // The thread's event is a descriptor.
                until("it was found", || {
                    used += burn(Duration::from_millis(1));
                    descriptors::open() > before
                });
                used + born_meanwhile()
            });
            thread.join().unwrap()
        };
        let (used, profile, _) = profiled(by(CpuSource::Perf, 1000), work);
        let (found, due) = (sum(&profile.samples_of("other_threads_are_found")).0, used.as_millis() as i64);
        assert!(found >= due - 3, "{found} of {due}");
    });
}

#[inline(never)]
fn short_lived() -> Duration {
    burn(Duration::from_micros(1500))
}

/// Most of these threads live for less than a period, and end before they are found.
#[test]
fn the_total_is_the_time_of_the_process() {
    for source in SOURCES {
        child::isolated_as("the_total_is_the_time_of_the_process", &format!("{source:?}"), || {
            let work = || {
                let start = used_by_all();
                for _ in 0..200 {
                    let threads = [thread::spawn(short_lived), thread::spawn(short_lived)];
                    threads.into_iter().for_each(|thread| _ = thread.join().unwrap());
                }
                used_by_all() - start
            };
            let (used, profile, stats) = profiled(by(source, 1000), work);
            let (found, due) = (sum(&profile.samples()).0, used.as_millis() as i64);
            assert_eq!(found as u64, stats.samples);
            assert!(found >= due * 95 / 100 && found <= due * 105 / 100 + 50, "{found} of {due}, {source:?}");
        });
    }
}

/// The time of a thread that blocks all signals has no stack, but is counted.
#[test]
fn time_of_threads_that_block_signals_is_told_of() {
    child::isolated("time_of_threads_that_block_signals_is_told_of", || {
        let blocking = || signals::block(&signals::all());
        let work = || _ = burn(Duration::from_millis(100));
        let thread = Waiting::prepared("blocking", blocking, work);
        let before = thread.clock.used();
        let run = || {
            thread.begin.send(()).unwrap();
            thread.done.recv().unwrap()
        };
        let (work, profile, _) = profiled(by(CpuSource::Auto, 1000), run);
        let found = sum(&profile.samples_of("thread_blocks_signals")).0;
        assert_between("blocking", found, (work, thread.clock.used() - before), 1000, CpuSource::Auto);
    });
}
