//! Programs that wait for signals themselves, and count the ticks of their timers: they get each of theirs, and none of ours.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::scope;
use std::time::{Duration, Instant};

use rtprof::pprof;
use test_support::contention::record_everything;
use test_support::processor::burn;
use test_support::{Background, PATIENCE, child, rounds, signals, until};

use crate::cpu::work::{SOURCES, by};

/// Takes the next signal of the set; `None` if there is none within the time.
fn wait_for(set: &libc::sigset_t, time: Duration) -> Option<(c_int, libc::siginfo_t)> {
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: an all-zero value is valid, and the call reads and writes locals.
    unsafe {
        let mut info: libc::siginfo_t = zeroed();
        let signal = libc::sigtimedwait(set, &raw mut info, &raw const time);
        (signal > 0).then_some((signal, info))
    }
}

/// Runs `work` while threads are sampled and asked for their stacks.
fn observed(source: pprof::CpuSource, work: impl FnOnce()) {
    let background = Background::default();
    record_everything();
    pprof::start_cpu_profile_with(std::io::sink(), by(source, 1000)).expect("no other profile goes on");
    scope(|scope| {
        let _ends = background.ends_here();
        scope.spawn(|| background.repeat(|| drop(rtprof::goroutine_profile())));
        work();
    });
    pprof::stop_cpu_profile().expect("it goes on");
}

/// The signal that the program sends itself.
fn own() -> c_int {
    libc::SIGRTMIN() + 7
}

/// Sends this thread a signal, computes for some periods of the CPU profile, and takes all signals that have come meanwhile.
/// Returns how many of them the program has not sent.
fn strange_signals(set: &libc::sigset_t, number: usize) -> usize {
    let value = libc::sigval { sival_ptr: without_provenance_mut(number) };
    // SAFETY: the thread is this one.
    assert_eq!(unsafe { libc::pthread_sigqueue(libc::pthread_self(), own(), value) }, 0);
    burn(Duration::from_millis(2));
    let (mut strange, mut is_taken) = (0, false);
    while let Some((signal, info)) = wait_for(set, Duration::ZERO) {
        // SAFETY: signals that were sent have a value, and others have zeros there.
        let is_own = signal == own() && unsafe { info.si_value() }.sival_ptr.addr() == number;
        assert!(!(is_own && is_taken), "twice");
        is_taken |= is_own;
        strange += usize::from(!is_own);
    }
    assert!(is_taken, "number {number} was sent");
    strange
}

#[test]
fn a_thread_that_takes_all_signals_gets_those_that_were_sent() {
    for source in SOURCES {
        let name = "a_thread_that_takes_all_signals_gets_those_that_were_sent";
        child::isolated_as(name, &format!("{source:?}"), || {
            let set = signals::all();
            // As programs do that have a thread for signals: before they start other threads.
            signals::block(&set);
            observed(source, || {
                (0..rounds(200, 2000)).for_each(|number| assert_eq!(strange_signals(&set, number), 0));
            });
        });
    }
}

/// A thread that begins to block signals while it is sampled gets no more of ours a moment later.
#[test]
fn a_thread_that_begins_to_take_all_signals_is_noticed() {
    for source in SOURCES {
        let name = "a_thread_that_begins_to_take_all_signals_is_noticed";
        child::isolated_as(name, &format!("{source:?}"), || {
            observed(source, || {
                let set = signals::all();
                burn(Duration::from_millis(10));
                signals::block(&set);
                let (started, mut quiet) = (Instant::now(), 0);
                for number in 0.. {
                    quiet = if strange_signals(&set, number) == 0 { quiet + 1 } else { 0 };
                    if quiet == 200 {
                        break;
                    }
                    assert!(started.elapsed() < PATIENCE, "it is not noticed");
                }
            });
        });
    }
}

const PERIOD: i64 = 500_000;

/// Ticks of the program's timer.
static TICKS: AtomicI64 = AtomicI64::new(0);
/// When its timer was set, in nanoseconds: between the two.
static SET: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];
/// The number of ticks after which the handler compares them with the clock.
static LEAST: AtomicI64 = AtomicI64::new(i64::MAX);
/// Whether there have been as many ticks as periods, at some time after that.
static ARE_ALL: AtomicBool = AtomicBool::new(false);
/// Whether there were more at any time.
static ARE_MORE: AtomicBool = AtomicBool::new(false);

fn now() -> i64 {
    // SAFETY: an all-zero value is valid, and the call writes to a local.
    unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

/// The kernel has counted what had come when it began to deliver the signal. A thread may lose its core between that and the
/// look at the clock, so that a single call says little; but after a lost tick there is no call with all of them.
extern "C" fn ticks(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes the information of a timer's signal, whose overrun follows the timer's number.
    let overrun = unsafe { *info.cast::<c_int>().add(5) };
    let new = 1 + i64::from(overrun);
    let counted = TICKS.fetch_add(new, Relaxed) + new;
    if counted >= LEAST.load(Relaxed) {
        let [most, least] = [0, 1].map(|at| (now() - SET[at].load(Relaxed)) / PERIOD);
        ARE_ALL.fetch_or(counted >= least, Relaxed);
        ARE_MORE.fetch_or(counted > most, Relaxed);
    }
}

/// Counts the ticks of a timer, and compares with the clock.
fn ticks_are_counted(count: i64) {
    // SAFETY: all-zero values are valid, and the calls read and write locals.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = ticks as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(own(), &raw const action, null_mut()), 0);
        let (mut event, mut timer): (libc::sigevent, libc::timer_t) = (zeroed(), zeroed());
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = own();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let time = libc::timespec { tv_sec: 0, tv_nsec: PERIOD };
        let setting = libc::itimerspec { it_interval: time, it_value: time };
        SET[0].store(now(), Relaxed);
        assert_eq!(libc::timer_settime(timer, 0, &raw const setting, null_mut()), 0);
        SET[1].store(now(), Relaxed);
        LEAST.store(count, SeqCst);
        until("all have come", || ARE_ALL.load(Relaxed));
        assert!(!ARE_MORE.load(Relaxed), "more ticks than periods");
        assert_eq!(libc::timer_delete(timer), 0);
    }
}

#[test]
fn no_tick_of_a_timer_is_lost() {
    for source in SOURCES {
        child::isolated_as("no_tick_of_a_timer_is_lost", &format!("{source:?}"), || {
            let background = Background::default();
            let computes = || {
                burn(Duration::from_millis(1));
            };
            scope(|scope| {
                let _ends = background.ends_here();
                scope.spawn(|| background.repeat(computes));
                observed(source, || ticks_are_counted(rounds(1000, 20_000)));
            });
        });
    }
}
