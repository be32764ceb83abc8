//! Deltas: additions over `seconds=`, and since the last request of `delta_heap`, `delta_mutex` and `delta_block`; and
//! what `gc=1` publishes.
//!
//! Everything is recorded (rate 1), so the numbers are those of the workload, which runs before, in and after the
//! requested time. Each test is a separate process, because rates and last requests belong to the process.

use std::hint::black_box;
use std::net::SocketAddr;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rtprof::collector;
use rtprof::http::serve;
use rtprof::sync::Mutex;
use test_support::profile::Profile;
use test_support::{child, contention, sample_types, until, web};

fn start() -> SocketAddr {
    serve("127.0.0.1:0").expect("a port is free").local_addr()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as i64
}

/// Allocates objects of 1000 bytes, and the list of them.
#[inline(never)]
fn documents(count: usize) -> Vec<Vec<u8>> {
    black_box((0..count).map(|_| vec![1; 1000]).collect())
}

/// Returns the objects and bytes that `documents` has in a profile for so many lists of `count`.
fn of_documents(lists: i64, count: i64) -> [i64; 2] {
    [lists * (count + 1), lists * count * (1000 + size_of::<Vec<u8>>() as i64)]
}

/// Requests a delta over a second and does `work` within it. Tries again with twice the time if the machine was too
/// busy.
fn within<T>(address: SocketAddr, target: &str, work: impl FnMut() -> T) -> (Profile, T) {
    let mut work = work;
    within_of(address, target, || (), |()| work())
}

/// Does as [`within`] does, with work that needs something prepared before.
fn within_of<P, T>(
    address: SocketAddr,
    target: &str,
    mut prepare: impl FnMut() -> P,
    mut work: impl FnMut(P) -> T,
) -> (Profile, T) {
    for seconds in [1, 2, 4, 8, 16, 32] {
        let prepared = prepare();
        let asked = Instant::now();
        let (profile, began, done, ended) = scope(|scope| {
            let target = format!("{target}?seconds={seconds}&gc=1&debug=x");
            let asking = scope.spawn(move || web::profile(address, &target));
            // This does not guarantee that the capture has begun; that is checked below.
            sleep(Duration::from_millis(400 * seconds));
            let began = now();
            let done = work(prepared);
            let ended = now();
            (asking.join().expect("it is answered"), began, done, ended)
        });
        let took = asked.elapsed().as_nanos() as i64;
        let (length, least) = (profile.duration_nanos, 1_000_000_000 * seconds as i64);
        assert!((least..took).contains(&length), "{target}: {length} ns of {took}");
        if profile.time_nanos - length < began && ended < profile.time_nanos {
            return (profile, done);
        }
    }
    panic!("{target}: nothing happens in time here");
}

#[test]
fn seconds_count_what_is_added() {
    child::isolated("seconds_count_what_is_added", || {
        rtprof::set_mem_profile_rate(1);
        let address = start();
        let _kept = documents(50);
        let prepare = || documents(7);
        let (profile, _new) = within_of(address, "heap", prepare, |freed_meanwhile| {
            drop(documents(5));
            drop(freed_meanwhile);
            documents(3)
        });
        let [allocated, bytes] = [of_documents(1, 5), of_documents(1, 3)].into_iter().fold([0; 2], add);
        let grown = add(of_documents(1, 3), of_documents(1, 7).map(|value| -value));
        assert_eq!(profile.totals_of("documents"), [allocated, bytes, grown[0], grown[1]]);

        let (profile, _new) = within(address, "allocs", || documents(4));
        let [objects, bytes] = of_documents(1, 4);
        assert_eq!(profile.totals_of("documents"), [objects, bytes, objects, bytes]);
        let _later = documents(2);
        let (profile, ()) = within(address, "heap", || ());
        assert_eq!(profile.samples_of("documents").len(), 0, "what has not changed is left out");
    });
}

fn add(a: [i64; 2], b: [i64; 2]) -> [i64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

/// Lets one thread wait for a lock that another holds for some milliseconds, `times` times.
#[inline(never)]
fn contend(times: usize) {
    static LOCK: Mutex<()> = Mutex::new(());
    for _ in 0..times {
        scope(|scope| {
            let guard = LOCK.lock();
            let _waiter = contention::queue(scope, || drop(LOCK.lock()));
            sleep(Duration::from_millis(2));
            drop(guard);
        });
    }
    black_box(());
}

fn waits(profile: &Profile) -> [i64; 2] {
    let sum =
        profile.samples().iter().fold([0; 2], |sum, sample| add(sum, [sample.values[0], sample.values[1]]));
    assert!(sum[1] >= sum[0] * 2_000_000, "each is of two milliseconds: {sum:?}");
    sum
}

#[inline(never)]
fn start_a_thread() {
    rtprof::thread::spawn(|| ()).join().expect("it ends");
    black_box(());
}

#[inline(never)]
fn stays_where_it_is(ends: &rtprof::sync::mpsc::Receiver<()>) {
    ends.recv().ok();
    black_box(());
}

#[test]
fn seconds_count_waits_and_threads() {
    child::isolated("seconds_count_waits_and_threads", || {
        let address = start();
        contention::record_everything();
        contend(4);
        let mut contended = 4;
        for name in ["block", "mutex"] {
            let (profile, ()) = within(address, name, || {
                contend(3);
                contended += 3;
            });
            assert_eq!(waits(&profile)[0], 3, "{name}");
        }
        assert_eq!(waits(&web::profile(address, "block"))[0], contended);
        start_a_thread();
        let (profile, ()) = within(address, "threadcreate", start_a_thread);
        assert_eq!(
            profile.samples_of("start_a_thread").iter().map(|sample| sample.values[0]).sum::<i64>(),
            1
        );
        // A thread that stays where it was is no change; running threads, the server's among them, may be elsewhere.
        let starts = || {
            let (end, ends) = rtprof::sync::mpsc::channel::<()>();
            let stays = rtprof::thread::spawn(move || stays_where_it_is(&ends));
            until("it waits", || {
                web::profile(address, "goroutine").samples_of("stays_where_it_is").len() == 1
            });
            (end, stays)
        };
        let lasts = starts();
        let (profile, ()) = within(address, "goroutine", || ());
        assert!(profile.samples_of("stays_where_it_is").is_empty());
        let ends = |(end, stays): (_, rtprof::thread::JoinHandle<()>)| {
            drop::<rtprof::sync::mpsc::Sender<()>>(end);
            stays.join().expect("it ends");
        };
        ends(lasts);
        let (profile, ()) = within_of(address, "goroutine", starts, ends);
        let gone = profile.samples_of("stays_where_it_is");
        assert_eq!(gone.iter().map(|sample| sample.values[0]).sum::<i64>(), -1);
    });
}

/// Each delta begins where the last one ended; the memory in use is complete each time, as scrapers expect.
#[test]
fn delta_heap_begins_where_the_last_one_ended() {
    child::isolated("delta_heap_begins_where_the_last_one_ended", || {
        rtprof::set_mem_profile_rate(1);
        let address = start();
        let totals = |profile: &Profile| profile.totals_of("documents");
        let _old = documents(10);
        drop(documents(1));
        let (all, old) = (add(of_documents(1, 10), of_documents(1, 1)), of_documents(1, 10));
        let before = Instant::now();
        let first = web::profile(address, "delta_heap");
        assert_eq!(totals(&first), [all[0], all[1], old[0], old[1]], "the first has everything");
        assert_eq!(first.duration_nanos, 0);
        let began = Instant::now();

        let _new = documents(3);
        drop(documents(2));
        // Neither these requests nor a HEAD count as requests of `delta_heap`.
        for other in ["heap", "allocs", "delta_block", "delta_mutex"] {
            web::profile(address, other);
        }
        let head = web::ask(address, "HEAD", "/debug/pprof/delta_heap", &[]);
        assert_eq!(head.status, 200);
        let (added, in_use) = (add(of_documents(1, 3), of_documents(1, 2)), add(old, of_documents(1, 3)));
        let least = began.elapsed();
        let answer = web::get(address, "/debug/pprof/delta_heap");
        let most = before.elapsed();
        assert_eq!(answer.header("Content-Disposition"), Some("attachment; filename=\"delta_heap\""));
        let second = Profile::read(&answer.body);
        assert_eq!(totals(&second), [added[0], added[1], in_use[0], in_use[1]]);
        let length = Duration::from_nanos(second.duration_nanos as u64);
        assert!((least..=most).contains(&length), "{length:?} is not from {least:?} to {most:?}");

        assert_eq!(
            totals(&web::profile(address, "delta_heap")),
            [0, 0, in_use[0], in_use[1]],
            "nothing was added"
        );
        let whole = web::profile(address, "heap").totals_of("documents");
        assert_eq!(whole[0], all[0] + added[0], "it takes nothing away from the profile");
        // Another server of the process continues where this one ended.
        drop(documents(6));
        let other = start();
        assert_eq!(totals(&web::profile(other, "delta_heap"))[..2], of_documents(1, 6));
        assert_eq!(totals(&web::profile(address, "delta_heap"))[..2], [0, 0]);
    });
}

#[test]
fn delta_block_and_delta_mutex_are_counted_apart() {
    child::isolated("delta_block_and_delta_mutex_are_counted_apart", || {
        let address = start();
        for name in ["delta_block", "delta_mutex"] {
            let empty = web::profile(address, name);
            let profile = name.trim_start_matches("delta_");
            assert_eq!(empty.sample_types(), sample_types::of(profile));
            assert!(empty.sample.is_empty(), "{name}: it was off");
        }
        contention::record_everything();
        contend(3);
        assert_eq!(waits(&web::profile(address, "delta_block"))[0], 3);
        contend(2);
        assert_eq!(waits(&web::profile(address, "delta_block"))[0], 2);
        assert_eq!(waits(&web::profile(address, "delta_mutex"))[0], 5);
        assert!(web::profile(address, "delta_mutex").sample.is_empty());
        assert_eq!(waits(&web::profile(address, "mutex"))[0], 5);
    });
}

/// In a program with a collector profiles show the last cycle, unless a request asks for the present state.
#[test]
fn gc_publishes_everything() {
    child::isolated("gc_publishes_everything", || {
        rtprof::set_mem_profile_rate(1);
        let address = start();
        for _ in 0..3 {
            collector::cycle();
            collector::sweep(|_| ());
            collector::post_sweep();
        }
        let totals = |target| web::profile(address, target).totals_of("documents");
        let mut kept = vec![documents(4)];
        let [objects, bytes] = of_documents(1, 4);
        for late in [
            "heap",
            "heap?gc=0",
            "heap?gc=x",
            "heap?gc=-1",
            "allocs?gc=1",
            "heap?seconds=1&gc=1",
            "delta_heap",
        ] {
            assert_eq!(totals(late), [0; 4], "{late}");
        }
        assert_eq!(web::ask(address, "HEAD", "/debug/pprof/heap?gc=1", &[]).status, 200);
        assert_eq!(totals("heap"), [0; 4], "a HEAD publishes nothing");
        assert_eq!(totals("heap?gc=1"), [objects, bytes, objects, bytes]);
        assert_eq!(totals("heap"), [objects, bytes, objects, bytes], "it stays so");
        kept.push(documents(4));
        assert_eq!(totals("delta_heap"), [objects, bytes, objects, bytes]);
        assert_eq!(totals("delta_heap?gc=1"), [objects, bytes, 2 * objects, 2 * bytes]);
        kept.clear();
        let text = web::get(address, "/debug/pprof/heap?gc=1&debug=1");
        let line = text.text().lines().next().expect("a header").to_owned();
        assert_eq!(totals("heap"), [2 * objects, 2 * bytes, 0, 0], "{line}");
    });
}
