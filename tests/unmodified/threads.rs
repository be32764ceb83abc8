//! Threads of std: their creators, their names, and their waits.

use std::fs::File;
use std::hint::black_box;
use std::sync::mpsc;
use std::thread::{Builder, sleep, spawn};
use std::time::Duration;

use rtprof::pprof;
use test_support::child;
use test_support::contention::{NONE, Seen, record_everything};
use test_support::folder;
use test_support::processor::burn;
use test_support::profile::Profile;
use test_support::until;

#[inline(never)]
fn creates_threads(count: usize) {
    black_box("creates_threads");
    for thread in (0..count).map(|_| spawn(|| ())).collect::<Vec<_>>() {
        thread.join().expect("it does nothing");
    }
}

fn profile(name: &str) -> Profile {
    let mut bytes = Vec::new();
    let profile = pprof::lookup(name).expect("it is built in");
    profile.write_to(&mut bytes, 0).expect("a vector takes everything");
    Profile::read(&bytes)
}

#[test]
fn every_thread_has_its_creator() {
    child::isolated("every_thread_has_its_creator", || {
        creates_threads(5);
        // The leaf is the function that spawned.
        let created = |function: &str| -> i64 {
            let profile = profile("threadcreate");
            let samples = profile.samples().into_iter();
            samples
                .filter(|sample| sample.frames[0].function.contains(function))
                .map(|sample| sample.values[0])
                .sum()
        };
        assert_eq!(created("creates_threads"), 5);
        // `rtprof::thread` reports its threads itself.
        rtprof::thread::spawn(|| ()).join().expect("it does nothing");
        let here = created("every_thread_has_its_creator::{closure#0}")
            + created("every_thread_has_its_creator::{{closure}}");
        assert_eq!(here, 1);
    });
}

#[test]
fn goroutines_have_the_names_and_creators_of_threads() {
    child::isolated("goroutines_have_the_names_and_creators_of_threads", || {
        let (stop, stopped) = mpsc::channel::<()>();
        let named = Builder::new().name("a name of its own".to_owned());
        let thread = named.spawn(move || stopped.recv().is_err()).expect("there is a thread to be had");
        // The kernel keeps 15 bytes of a name.
        until("the thread has its name", || {
            rtprof::goroutine_profile().iter().any(|goroutine| goroutine.name == "a name of its o")
        });
        let mut text = Vec::new();
        pprof::lookup("goroutine").unwrap().write_to(&mut text, 2).unwrap();
        let text = String::from_utf8(text).unwrap();
        let named = |record: &&rtprof::GoroutineRecord| record.name == "a name of its o";
        let id = rtprof::goroutine_profile().iter().find(named).expect("it waits").id;
        let dump = text.split("\n\n").find(|dump| dump.starts_with(&format!("goroutine {id} [")));
        let (_, creator) = dump.and_then(|dump| dump.split_once("created by ")).expect("it has a creator");
        // The function's own name: rtprof has a file `threads.rs` too.
        assert!(creator.starts_with(module_path!()), "{creator}");
        drop(stop);
        assert!(thread.join().expect("it ends well"));
        assert!(rtprof::goroutine_profile().iter().all(|goroutine| goroutine.name != "a name of its o"));
    });
}

#[test]
fn threads_inherit_labels() {
    child::isolated("threads_inherit_labels", || {
        let inherited = pprof::do_with(pprof::labels(&[("request", "7")]), || {
            spawn(|| pprof::label("request")).join().expect("it ends well")
        });
        assert_eq!(inherited.as_deref(), Some("7"));
        assert_eq!(spawn(|| pprof::label("request")).join().expect("it ends well"), None);
    });
}

/// A sleep is in no block profile, because no other thread can shorten it.
#[test]
fn a_sleep_is_no_wait_of_the_block_profile() {
    child::isolated("a_sleep_is_no_wait_of_the_block_profile", || {
        record_everything();
        #[inline(never)]
        fn sleeper() {
            black_box("sleeper");
            sleep(Duration::from_millis(5));
        }
        sleeper();
        assert_eq!(Seen::unmodified().blocked("sleeper"), NONE);
    });
}

/// `rtprof::sync` and std in one program: each wait is counted once.
#[test]
fn both_kinds_of_locks_count_a_wait_once() {
    child::isolated("both_kinds_of_locks_count_a_wait_once", || {
        record_everything();
        #[inline(never)]
        fn waits(wait: impl FnOnce()) {
            black_box("waits");
            wait();
            black_box("waits");
        }
        let ours = rtprof::sync::Mutex::new(());
        let theirs = std::sync::Mutex::new(());
        std::thread::scope(|scope| {
            let (held, also_held) = (ours.lock(), theirs.lock().unwrap());
            let wait = || waits(|| drop(ours.lock()));
            let first = test_support::contention::queue(scope, wait);
            let second = test_support::contention::queue(scope, || waits(|| drop(theirs.lock().unwrap())));
            drop((held, also_held));
            first.thread.join().unwrap();
            second.thread.join().unwrap();
        });
        // `join` of a thread of ours waits in std's `join` too.
        let (send, receive) = mpsc::channel::<()>();
        let thread = rtprof::thread::spawn(move || receive.recv().is_err());
        std::thread::scope(|scope| {
            let joins = test_support::contention::queue(scope, || waits(|| drop(thread.join())));
            drop(send);
            joins.thread.join().unwrap();
        });
        assert_eq!(Seen::unmodified().blocked("waits").count, 3);
    });
}

#[inline(never)]
fn short_lived() -> Duration {
    burn(Duration::from_millis(2))
}

/// Threads that end before a look at the list of threads would find them are sampled from their first instruction.
#[test]
fn short_threads_have_samples() {
    child::isolated("short_threads_have_samples", || {
        let path = folder::tmp().join("short-threads.pb.gz");
        let file = File::create(&path).expect("there is room");
        let options =
            pprof::CpuProfileOptions { hz: 1_000, source: pprof::CpuSource::Perf, ..Default::default() };
        pprof::start_cpu_profile_with(file, options).expect("the kernel allows it");
        let threads = (0..400).map(|_| spawn(short_lived).join().expect("it only works"));
        let used = threads.sum::<Duration>().as_millis() as i64;
        pprof::stop_cpu_profile().expect("it stops");
        let profile = Profile::read(&std::fs::read(&path).expect("it was written"));
        let [found, missed] =
            ["short_lived", "cpu_time_not_sampled"].map(|function| profile.totals_of(function)[0]);
        let is_right = found * 10 >= used * 8 && found * 10 <= used * 12 && missed * 10 <= used;
        assert!(is_right, "{found} of {used}, {missed} not sampled");
    });
}
