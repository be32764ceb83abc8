//! A reader sees the program's calls, and none of the functions that stand between them and the C library.

use std::fs::File;
use std::io::Read;
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

/// Two threads send each other messages, and one of them reads a file, for this time.
fn talk_and_read(time: Duration) {
    let (to, from) = mpsc::channel::<()>();
    let (back, answers) = mpsc::channel::<()>();
    let mut zeros = File::open("/dev/zero").expect("it is there");
    let mut bytes = vec![0; 1 << 16];
    scope(|threads| {
        threads.spawn(move || from.into_iter().for_each(|message| back.send(message).expect("it waits")));
        let begin = Instant::now();
        while begin.elapsed() < time {
            to.send(()).expect("it listens");
            answers.recv().expect("it answers");
            zeros.read_exact(&mut bytes).expect("it has no end");
        }
        drop(to);
    });
}

/// Returns the samples of a CPU profile of that work.
fn samples() -> Vec<Sample> {
    let path = folder::tmp().join("whose-frames.pb.gz");
    pprof::start_cpu_profile(File::create(&path).expect("there is room")).expect("no other goes on");
    talk_and_read(Duration::from_secs(1));
    pprof::stop_cpu_profile().expect("it stops");
    Profile::read(&std::fs::read(&path).expect("it was written")).samples()
}

/// The kernel's time is that of the call for which it was used.
#[test]
fn a_cpu_profile_has_the_time_of_calls() {
    child::isolated("a_cpu_profile_has_the_time_of_calls", || {
        record_everything();
        rtprof::set_block_profile_kinds(rtprof::BlockKinds::all());
        let mut missing = vec!["syscall", "read"];
        // On a busy machine a call may have no sample in a second.
        until("each call has a sample", || {
            for Sample { frames, .. } in samples() {
                let leaf = &frames[0].function;
                // What rtprof does itself is shown, as is right.
                assert!(!leaf.ends_with("::system_call"), "{frames:#?}");
                if missing.contains(&leaf.as_str()) {
                    let above = &frames[1].function;
                    assert!(!BETWEEN.iter().any(|ours| above.contains(ours)), "{frames:#?}");
                    missing.retain(|call| call != leaf);
                }
            }
            missing.is_empty()
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
