//! Sampling neither ends nor stops the program, whatever the program does.

use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::panic::{catch_unwind, resume_unwind};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rtprof::pprof::{self, CpuSource};
#[cfg(target_arch = "x86_64")]
use test_support::foreign_stack::switches_stacks;
use test_support::library::{Library, libraries};
use test_support::processor::burn;
use test_support::{Background, child, stress, workload};

use super::work::{SOURCES, by, profiled, samples_of};

/// The highest rate that is allowed.
const HZ: u32 = 10_000;

/// Runs all of this work on threads while they are sampled. Returns the number of samples of `function`.
fn under(source: CpuSource, function: &str, work: &[&(dyn Fn() + Sync)]) -> i64 {
    let background = Background::default();
    let all = || {
        thread::scope(|scope| {
            let _ends = background.ends_here();
            for work in work {
                let background = &background;
                scope.spawn(move || background.repeat(work));
            }
            let started = Instant::now();
            while started.elapsed() < stress() {
                // This thread only waits, and is sampled too.
                burn(Duration::from_millis(1));
                thread::sleep(Duration::from_millis(1));
            }
        });
    };
    let ((), profile, stats) = profiled(by(source, HZ), all);
    println!("{} samples in {:?}", stats.samples, stats.duration);
    samples_of(&profile, function)
}

#[inline(never)]
fn unwinds() {
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            black_box(&self);
        }
    }
    #[inline(never)]
    fn deep(depth: u32) {
        let _dropped = Dropped;
        match depth {
            0 => resume_unwind(Box::new(1)),
            depth => deep(depth - 1),
        }
    }
    assert!(catch_unwind(|| deep(10)).is_err());
}

#[test]
fn panics_that_are_caught() {
    for source in SOURCES {
        child::isolated_as("panics_that_are_caught", &format!("{source:?}"), || {
            assert!(under(source, "stress::unwinds", &[&unwinds, &unwinds]) > 0);
        });
    }
}

#[inline(never)]
fn allocates() {
    workload::every_kind();
    black_box((0..200).map(|size| vec![0_u8; size * 20]).collect::<Vec<_>>());
}

#[test]
fn a_storm_of_allocations() {
    for source in SOURCES {
        child::isolated_as("a_storm_of_allocations", &format!("{source:?}"), || {
            assert!(under(source, "stress::allocates", &[&allocates, &allocates, &allocates]) > 0);
        });
    }
}

extern "C" fn called_from_c(_: *mut c_void) {
    for i in 0..1000 {
        black_box(i);
    }
}

#[test]
fn libraries_that_come_and_go() {
    let test = "libraries_that_come_and_go";
    let libraries = libraries(test);
    for source in SOURCES {
        child::isolated_as(test, &format!("{source:?}"), || {
            let load = || {
                for path in &libraries {
                    let library = Library::open(path);
                    (0..100).for_each(|_| library.call_back(called_from_c));
                }
            };
            assert!(under(source, "stress::called_from_c", &[&load, &load, &allocates]) > 0);
        });
    }
}

/// Signals arrive while the stack pointer points to no memory.
#[cfg(target_arch = "x86_64")]
#[test]
fn stacks_that_are_switched() {
    for source in SOURCES {
        child::isolated_as("stacks_that_are_switched", &format!("{source:?}"), || {
            assert!(under(source, "rtprof_test_compute_at", &[&switches_stacks, &switches_stacks]) > 0);
        });
    }
}

#[inline(never)]
fn makes_processes() {
    // SAFETY: the child makes only a system call.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        let mut status = 1;
        assert!(child > 0 && libc::waitpid(child, &raw mut status, 0) == child && status == 0, "{status}");
    }
    assert!(Command::new("/bin/true").status().unwrap().success());
}

#[test]
fn forks_and_executions() {
    for source in SOURCES {
        child::isolated_as("forks_and_executions", &format!("{source:?}"), || {
            assert!(under(source, "stress::makes_processes", &[&makes_processes, &allocates]) > 0);
        });
    }
}

#[inline(never)]
fn short_lives() {
    let threads: Vec<_> = (0..20)
        .map(|at| {
            let work = move || burn(Duration::from_micros(at * 50));
            if at % 2 == 0 { Ok(thread::spawn(work)) } else { Err(rtprof::thread::spawn(work)) }
        })
        .collect();
    for thread in threads {
        match thread {
            Ok(thread) => drop(thread.join().unwrap()),
            Err(thread) => drop(thread.join().unwrap()),
        }
    }
}

#[test]
fn threads_that_come_and_go() {
    for source in SOURCES {
        child::isolated_as("threads_that_come_and_go", &format!("{source:?}"), || {
            assert!(under(source, "short_lives", &[&short_lives, &short_lives]) > 0);
        });
    }
}

/// Every other recorder at its finest rate, a trace, and snapshots that signal every thread.
#[test]
fn all_profiles_at_once() {
    static LOCK: rtprof::sync::Mutex<u64> = rtprof::sync::Mutex::new(0);
    let waits = || {
        for _ in 0..50 {
            let mut held = LOCK.lock();
            (0..200).for_each(|i| *held = black_box(i));
        }
    };
    let snapshots = || {
        assert!(rtprof::goroutine_profile().len() > 2);
        black_box(rtprof::mem_profile(true));
    };
    for source in SOURCES {
        child::isolated_as("all_profiles_at_once", &format!("{source:?}"), || {
            rtprof::set_mem_profile_rate(1);
            rtprof::set_block_profile_rate(1);
            rtprof::set_mutex_profile_fraction(1);
            rtprof::trace::start(io::sink()).unwrap();
            assert!(under(source, "stress::allocates", &[&waits, &waits, &allocates, &snapshots]) > 0);
            rtprof::trace::stop().unwrap();
        });
    }
}

/// Profiles that begin and end all the time, while other threads are sampled.
#[test]
fn starts_and_stops() {
    for source in SOURCES {
        child::isolated_as("starts_and_stops", &format!("{source:?}"), || {
            let background = Background::default();
            let rounds = thread::scope(|scope| {
                let _ends = background.ends_here();
                scope.spawn(|| background.repeat(allocates));
                scope.spawn(|| background.repeat(short_lives));
                let (started, mut rounds) = (Instant::now(), 0);
                while started.elapsed() < stress() || rounds < 5 {
                    pprof::start_cpu_profile_with(io::sink(), by(source, HZ)).unwrap();
                    pprof::stop_cpu_profile().unwrap();
                    rounds += 1;
                }
                rounds
            });
            println!("{rounds} rounds");
        });
    }
}
