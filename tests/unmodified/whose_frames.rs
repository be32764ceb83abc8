//! A reader sees the program's calls, and none of the functions that stand between them and the C library.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::{Condvar, Mutex, mpsc};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use rtprof::pprof;
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::contention::record_everything;
use test_support::profile::{Profile, Sample};
use test_support::recording::record;
use test_support::{folder, until};

use crate::calls::play_all;

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
        let (mut in_kernel, mut returned) = (0, 0);
        // On a busy machine a call may have no sample in a second.
        until("each call has a sample", || {
            for sample in samples() {
                let (frames, count) = (&sample.frames, sample.values[0]);
                let leaf = &frames[0].function;
                // What rtprof does itself is shown, as is right.
                assert!(!leaf.ends_with("::system_call"), "{frames:#?}");
                in_kernel += if leaf == "syscall" { count } else { 0 };
                // Where a thread is found that is in the kernel, unless the address is kept within `system_call`.
                returned += if sample.has("forward::returned") { count } else { 0 };
                if missing.contains(&leaf.as_str()) {
                    let above = &frames[1].function;
                    assert!(!BETWEEN.iter().any(|ours| above.contains(ours)), "{frames:#?}");
                    missing.retain(|call| call != leaf);
                }
            }
            missing.is_empty() && in_kernel + returned > 50
        });
        assert!(in_kernel > 4 * returned, "{in_kernel} samples in the kernel, {returned} after it");
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
            dump.contains("nanosleep") && dump.contains(" [sleep")
        });
        assert!(!BETWEEN.iter().any(|ours| dump.contains(ours)), "{dump}");
    });
}

/// Waits, wakes and calls of each kind, in the program's own functions.
fn everything() {
    let (lock, condition) = (&Mutex::new(0_u32), &Condvar::new());
    let mut zeros = File::open("/dev/zero").expect("it is there");
    scope(|threads| {
        let (to, from) = mpsc::channel();
        threads.spawn(move || from.into_iter().for_each(sleep));
        threads.spawn(|| drop(condition.wait_while(lock.lock().unwrap(), |done| *done == 0).unwrap()));
        for _ in 0..20 {
            let held = lock.lock().unwrap();
            let waits = threads.spawn(|| wait_for(lock));
            sleep(Duration::from_millis(1));
            drop(held);
            waits.join().expect("it only waits");
            to.send(Duration::from_micros(200)).expect("it listens");
            zeros.read_exact(&mut vec![0; 1 << 20]).expect("it has no end");
        }
        *lock.lock().unwrap() = 1;
        condition.notify_all();
        let reads = rtprof::sync::Mutex::new(());
        let held = reads.lock();
        let waits = rtprof::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(reads.lock()));
            sleep(Duration::from_millis(1));
            drop(held);
            waits.join()
        });
        waits.expect("it only waits");
    });
    play_all();
}

#[inline(never)]
fn wait_for(lock: &Mutex<u32>) {
    drop(lock.lock().unwrap());
}

/// Functions that no reader wants at either end of a stack: ours, and those of std that only call others.
fn is_machinery(function: &str) -> bool {
    function.contains("rtprof_")
        || ["core::", "alloc::", "std::panic", "std::thread::local", "std::rt::", "__rust_"]
            .iter()
            .any(|part| function.trim_start_matches('<').starts_with(part))
}

/// What the program waits for is where a stack of a trace begins, and what it began with is where it ends, in all formats.
#[test]
fn stacks_of_traces_have_no_machinery_at_their_ends() {
    child::isolated("stacks_of_traces_have_no_machinery_at_their_ends", || {
        let trace = record(everything);
        let mut seen = HashSet::new();
        for trace in [&trace.in_first_format(), &trace] {
            let mut wrong = BTreeSet::new();
            for event in trace.parsed.events() {
                let stack = event.functions();
                // The last is the thread's name.
                if let [first, .., last, _] = stack[..] {
                    seen.insert(event.event_type());
                    let is_wrong = is_machinery(first) || is_machinery(last);
                    wrong.extend(is_wrong.then(|| format!("{}: {stack:#?}", event.event_type().name())));
                }
            }
            assert_eq!(wrong.first(), None, "and {} more", wrong.len());
        }
        let perfetto = trace.in_perfetto();
        let waits = perfetto.events.iter().filter(|event| &*event.category == "wait");
        assert_ne!(waits.filter(|wait| wait.stack.len() > 1).count(), 0);
        for event in &perfetto.events {
            if let [first, .., last] = &event.stack[..] {
                let is_wrong = is_machinery(&first.function) || is_machinery(&last.function);
                assert!(!is_wrong, "{event:#?}");
            }
        }
        for kind in [
            EventType::GoCreate,
            EventType::GoSleep,
            EventType::GoBlockSync,
            EventType::GoUnblock,
            EventType::GoSysCall,
        ] {
            assert!(seen.contains(&kind), "{kind:?} is among {seen:?}");
        }
    });
}
