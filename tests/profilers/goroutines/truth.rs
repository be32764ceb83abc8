//! Truth under load: every thread that lives throughout is listed once, no ended thread is listed, and no stack mixes
//! two moments.

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Mutex as OtherMutex;
use std::time::{Duration, Instant};

use rtprof::sync::mpsc::{self, Receiver, Sender};
use rtprof::sync::{Condvar, Mutex};
use rtprof::{GoroutineRecord, goroutine_profile, thread};
use test_support::{Background, child, rounds, stress};

use super::names::Names;

const WORKERS: usize = 6;

macro_rules! roles {
    ($($role:ident($($parameter:ident: $kind:ty),*) $body:expr;)*) => {
        $(#[inline(never)]
        fn $role($($parameter: $kind),*) {
            $body;
            // Keeps the function from being merged with another one.
            black_box(stringify!($role));
        })*
    };
}

roles! {
    locks(mutex: &Mutex<u64>) {
        let mut count = mutex.lock();
        *count += 1;
        black_box((0..200).map(black_box).sum::<u64>());
    };
    waits_for_condition(mutex: &Mutex<u64>, condition: &Condvar) {
        let mut guard = mutex.lock();
        condition.wait_for(&mut guard, Duration::from_micros(50));
    };
    receives(receive: &Receiver<()>) receive.recv().expect("it is sent to");
    sends(send: &Sender<()>) send.send(()).expect("it is received");
    sleeps() thread::sleep(Duration::from_micros(30));
}

/// Returns the functions in which a thread may wait for this reason.
fn places(reason: &str) -> &'static [&'static str] {
    match reason {
        // A condition takes its mutex again, and a channel contains a mutex.
        "sync.Mutex.Lock" => &["locks", "waits_for_condition", "receives", "sends"],
        "sync.Cond.Wait" => &["waits_for_condition"],
        "chan receive" => &["receives"],
        "sleep" => &["sleeps"],
        other => panic!("no worker waits for {other}"),
    }
}

/// Returns the roles whose functions are in a stack.
fn roles<'n>(names: &'n mut Names, goroutine: &GoroutineRecord) -> Vec<&'n str> {
    let names = names.of(goroutine).into_iter();
    names.filter_map(|name| name.strip_prefix(concat!(module_path!(), "::"))).collect()
}

#[test]
fn nothing_is_missing_double_or_mixed_under_load() {
    child::isolated("nothing_is_missing_double_or_mixed_under_load", || {
        let (mutex, condition) = (Mutex::new(0), Condvar::new());
        let background = Background::default();
        // The ids of threads that were joined.
        let ended = OtherMutex::new(HashSet::new());
        let own_id = || goroutine_profile()[0].id;
        thread::scope(|scope| {
            let (ids, lasting) = mpsc::channel();
            for _ in 0..WORKERS {
                let (mutex, condition, background) = (&mutex, &condition, &background);
                let ids = ids.clone();
                let worker = thread::Builder::new().name("worker".into());
                worker
                    .spawn_scoped(scope, move || {
                        ids.send(own_id()).expect("they are waited for");
                        let (send, receive) = mpsc::channel();
                        // The partner thread ends when the channel is closed.
                        let (back, answers) = mpsc::channel();
                        let partner =
                            thread::spawn(move || while receive.recv().is_ok() && back.send(()).is_ok() {});
                        background.repeat(|| {
                            sends(&send);
                            receives(&answers);
                            locks(mutex);
                            waits_for_condition(mutex, condition);
                            sleeps();
                        });
                        drop(send);
                        partner.join().expect("it does not panic");
                    })
                    .expect("a thread");
            }
            let lasting: Vec<u64> = lasting.iter().take(WORKERS).collect();
            let _ends = background.ends_here();
            // Threads begin and end, and take snapshots beside the main one.
            let (ended, other) = (&ended, &background);
            scope.spawn(move || {
                other.repeat(|| {
                    let id = thread::spawn(own_id).join().expect("it has a number");
                    ended.lock().expect("nobody panics").insert(id);
                });
            });
            scope.spawn(|| background.repeat(|| drop(goroutine_profile())));

            let mut names = Names::default();
            let (mut snapshots, mut waiting) = (0, HashSet::new());
            let start = Instant::now();
            while snapshots < rounds(70, 200) || start.elapsed() < stress() {
                let gone = ended.lock().expect("nobody panics").clone();
                let all = goroutine_profile();
                snapshots += 1;
                let there: HashSet<u64> = all.iter().map(|goroutine| goroutine.id).collect();
                assert_eq!(there.len(), all.len(), "one is there twice: {all:?}");
                assert!(there.is_disjoint(&gone), "one is there that was joined before");
                for id in &lasting {
                    assert!(there.contains(id), "goroutine {id} is missing in {all:?}");
                }
                for worker in all.iter().filter(|goroutine| lasting.contains(&goroutine.id)) {
                    assert_eq!(worker.name, "worker");
                    let Some(reason) = worker.wait_reason() else { continue };
                    let roles = roles(&mut names, worker);
                    let [first, ..] = &roles[..] else { panic!("{worker:?} is nowhere") };
                    assert!(places(reason.name()).contains(first), "{reason:?} in {roles:?}");
                    let end = names.of(worker).last().copied();
                    assert_eq!(end, Some("thread start"), "{worker:?}");
                    waiting.insert(reason);
                }
            }
            assert!(waiting.len() >= 3, "too little was seen: {waiting:?} in {snapshots} snapshots");
        });
    });
}
