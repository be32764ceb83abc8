//! The sum of all samples is the processor time that was used: of each thread, however it runs and whenever it began.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rtprof::pprof::{CpuProfileOptions, CpuSource};

use crate::support::processor::{burn, used, used_by_all};
use crate::support::profile::Profile;
use crate::support::{child, descriptors, until};
use crate::work::{SOURCES, by, profiled, sum};

fn samples_of_thread(profile: &Profile, name: &str) -> i64 {
    let samples = profile.samples();
    sum(samples.iter().filter(|sample| sample.labels.get("thread name").is_some_and(|of| of == name))).0
}

fn by_thread(source: CpuSource, hz: u32) -> CpuProfileOptions {
    CpuProfileOptions { thread_labels: true, ..by(source, hz) }
}

/// A thread that waits at both ends, so that it is there before the profile and after it.
fn waiting(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> (mpsc::Sender<()>, mpsc::Receiver<Duration>, mpsc::Sender<()>) {
    let (begin, begins) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let thread = thread::Builder::new().name(name.into());
    thread
        .spawn(move || {
            begins.recv().ok();
            let start = used();
            work();
            done.send(used() - start).ok();
            ends.recv().ok();
        })
        .unwrap();
    (begin, is_done, end)
}

#[test]
fn each_thread_has_its_time() {
    for source in SOURCES {
        for hz in [100, 1000] {
            child::isolated_as("each_thread_has_its_time", &format!("{source:?} {hz}"), || {
                let steady = || _ = burn(Duration::from_millis(300));
                let bursts = |run: u64, rest: u64| {
                    move || {
                        for _ in 0..300 / (run + rest) {
                            burn(Duration::from_millis(run));
                            thread::sleep(Duration::from_millis(rest));
                        }
                    }
                };
                let threads = [
                    ("steady", waiting("steady", steady)),
                    ("half", waiting("half", bursts(5, 5))),
                    ("tenth", waiting("tenth", bursts(1, 9))),
                ];
                let work = || {
                    threads.iter().for_each(|(_, (begin, ..))| begin.send(()).unwrap());
                    threads
                        .iter()
                        .map(|(name, (_, done, _))| (*name, done.recv().unwrap()))
                        .collect::<Vec<_>>()
                };
                let (used, profile, _) = profiled(by_thread(source, hz), work);
                for (name, used) in used {
                    let (found, due) =
                        (samples_of_thread(&profile, name), used.as_secs_f64() * f64::from(hz));
                    // Begun and ended within a period, and a bit of work beside.
                    assert!(
                        (found as f64 - due).abs() <= 3.0 + due / 50.0,
                        "{name}: {found} of {due}, {source:?}"
                    );
                }
            });
        }
    }
}

#[inline(never)]
fn born_meanwhile() -> Duration {
    burn(Duration::from_millis(60))
}

/// Threads that rtprof starts attach themselves: nothing of their lives is missed.
#[test]
fn threads_of_ours_are_there_from_their_birth() {
    for source in SOURCES {
        child::isolated_as("threads_of_ours_are_there_from_their_birth", &format!("{source:?}"), || {
            let (end, ends) = mpsc::channel::<()>();
            let ends = Mutex::new(ends);
            let work = || {
                let (done, is_done) = mpsc::channel();
                let threads = (0..4).map(|_| {
                    let (done, ends) = (done.clone(), &ends);
                    // They live until after the profile, for what their timers have missed by then is counted.
                    move || {
                        done.send(born_meanwhile()).unwrap();
                        ends.lock().unwrap().recv().ok();
                    }
                });
                let threads: Vec<_> = threads.collect();
                (threads, is_done)
            };
            rtprof::thread::scope(|scope| {
                let (used, profile, _) = profiled(by(source, 1000), || {
                    let (threads, is_done) = work();
                    let count = threads.len();
                    threads.into_iter().for_each(|thread| _ = scope.spawn(thread));
                    (0..count).map(|_| is_done.recv().unwrap()).sum::<Duration>()
                });
                let (own, due) = (sum(&profile.samples_of("born_meanwhile")).0, used.as_millis() as i64);
                let missed = sum(&profile.samples_of("cpu_time_not_sampled")).0;
                let found = own + missed;
                assert!(
                    (found - due).abs() <= 4 * 3 && own * 2 >= due,
                    "{own} and {missed} of {due}, {source:?}"
                );
                drop(end);
            });
        });
    }
}

/// Others are found within 50 ms, if the collector has a core then. What they have done before is their first sample's.
#[test]
fn other_threads_are_found() {
    child::isolated("other_threads_are_found", || {
        let work = || {
            let before = descriptors::open();
            let thread = thread::spawn(move || {
                let mut used = Duration::ZERO;
                // Its event is a descriptor.
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

/// Most of these live for less than a period, and end before they are found.
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

/// What a thread does that blocks all signals has no stack, but is not forgotten.
#[test]
fn time_of_threads_that_block_signals_is_told_of() {
    child::isolated("time_of_threads_that_block_signals_is_told_of", || {
        let blocking = || {
            // SAFETY: blocks the signals of this thread, which ends soon.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            }
        };
        let (ready, is_ready) = mpsc::channel();
        let (begin, begins) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            blocking();
            ready.send(()).unwrap();
            begins.recv().ok();
            done.send(burn(Duration::from_millis(100))).unwrap();
            ends.recv().ok();
        });
        is_ready.recv().unwrap();
        let work = || {
            begin.send(()).unwrap();
            is_done.recv().unwrap()
        };
        let (used, profile, _) = profiled(by(CpuSource::Auto, 1000), work);
        let (found, due) = (sum(&profile.samples_of("thread_blocks_signals")).0, used.as_millis() as i64);
        assert!((found - due).abs() <= 20, "{found} of {due}");
        drop(end);
        thread.join().unwrap();
    });
}
