//! A reader sees the program's calls, and none of the functions that stand between them and the C library.

use std::fs::File;
use std::sync::mpsc;
use std::thread::{scope, spawn};
use std::time::{Duration, Instant};

use rtprof::pprof;
use test_support::child;
use test_support::contention::record_everything;
use test_support::profile::{Profile, Sample};
use test_support::{folder, until};

/// Functions of ours that do nothing but pass a call on.
const BETWEEN: [&str; 4] = ["rtprof_hooks::interpose::", "interposed_", "watched", "system_call"];

/// Two threads send each other a message, over and over, for this time.
fn talk(time: Duration) {
    let (to, from) = mpsc::channel::<()>();
    let (back, answers) = mpsc::channel::<()>();
    scope(|threads| {
        threads.spawn(move || from.into_iter().for_each(|message| back.send(message).expect("it waits")));
        let begin = Instant::now();
        while begin.elapsed() < time {
            to.send(()).expect("it listens");
            answers.recv().expect("it answers");
        }
        drop(to);
    });
}

/// Returns the samples of a CPU profile of threads that talk.
fn of_threads_that_talk() -> Vec<Sample> {
    let path = folder::tmp().join("of-threads-that-talk.pb.gz");
    pprof::start_cpu_profile(File::create(&path).expect("there is room")).expect("no other goes on");
    talk(Duration::from_secs(1));
    pprof::stop_cpu_profile().expect("it stops");
    Profile::read(&std::fs::read(&path).expect("it was written")).samples()
}

/// The kernel's time is that of the call for which it was used.
#[test]
fn a_cpu_profile_has_the_time_of_calls() {
    child::isolated("a_cpu_profile_has_the_time_of_calls", || {
        record_everything();
        // Where the kernel has no samples of its time, some have to be awaited.
        until("a sample is in a call", || {
            let samples = of_threads_that_talk();
            let in_the_kernel = |sample: &&Sample| sample.frames[0].function == "syscall";
            for sample in &samples {
                let leaf = &sample.frames[0].function;
                assert!(!leaf.contains("interpose::forward"), "{:#?}", sample.frames);
            }
            let Some(sample) = samples.iter().find(in_the_kernel) else { return false };
            let above = &sample.frames[1].function;
            assert!(!BETWEEN.iter().any(|ours| above.contains(ours)), "{:#?}", sample.frames);
            true
        });
    });
}

/// A thread that began to sleep before anything was recorded, in a function of C that it calls directly.
#[test]
fn a_dump_has_the_call_in_which_a_thread_sleeps() {
    child::isolated("a_dump_has_the_call_in_which_a_thread_sleeps", || {
        extern "C" fn sleeps_in_c() {
            let long = libc::timespec { tv_sec: 1_000, tv_nsec: 0 };
            loop {
                // SAFETY: reads a local.
                unsafe {
                    libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const long, std::ptr::null_mut())
                };
            }
        }
        spawn(|| sleeps_in_c());
        let mut dump = String::new();
        until("the thread sleeps", || {
            let mut bytes = Vec::new();
            pprof::lookup("goroutine").unwrap().write_to(&mut bytes, 2).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let found = text.split("\n\n").find(|dump| dump.contains("sleeps_in_c"));
            dump = found.unwrap_or_default().to_owned();
            dump.contains("nanosleep")
        });
        assert!(!BETWEEN.iter().any(|ours| dump.contains(ours)), "{dump}");
    });
}
