//! The real `go tool trace`, of the newest Go and of the oldest that must read our files, opens our traces: its parser,
//! its profiles, and every page of its web server, which crashes on traces that its parser accepts.

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rtprof::sync::Mutex;
use rtprof::sync::mpsc::{channel, sync_channel};
use rtprof::thread;
use rtprof::trace::{self, Options};
use rtprof_trace_check::EventType;
use rtprof_trace_out::self_check;
use test_support::contention::{thread_id, wait_until_asleep};
use test_support::recording::{self, Kept, record, saved, valid};
use test_support::trace_go::{Reading, check, check_events, check_pages, check_profiles, readings};
use test_support::trace_script;
use test_support::{Background, child, go, rounds, stress, until};

fn now_asleep(rx: std::sync::mpsc::Receiver<i32>) {
    rx.iter().for_each(wait_until_asleep);
}

#[test]
fn everything() {
    child::isolated("everything", || {
        let trace = record(trace_script::everything);
        let sync = [
            "locks",
            "reads",
            "writes",
            "awaits",
            "waits_for_once",
            "meets",
            "acquires",
            "receives",
            "sends",
        ];
        let own = ["joins", "parks", "waits_for_sync", "waits_for_cond", "waits_to_send", "selects"];
        let sync = [&sync[..], &own].concat();
        let profiles: [(&str, &[&str]); 4] = [
            ("net", &["waits_for_net"]),
            ("sync", &sync),
            ("syscall", &["calls_system"]),
            ("sched", &["unlocks", "sends_message"]),
        ];
        check("everything", &trace, &profiles);
    });
}

/// A trace of a program that does nothing is valid too.
#[test]
fn nothing() {
    child::isolated("nothing", || {
        let trace = record(|| ());
        trace.assert_whole();
        for Reading { go, path, parsed, .. } in readings("nothing", &trace) {
            check_events(&go, &path, &parsed);
            check_pages(&go, &path);
        }
    });
}

/// Every thread waits when the trace starts, and wakes in it.
#[test]
fn started_while_all_wait() {
    child::isolated("started_while_all_wait", || {
        let lock = Mutex::new(());
        let kept = Kept::default();
        let (sender, receiver) = channel::<()>();
        let mut guard = Some(lock.lock());
        let mut stats = None;
        thread::scope(|scope| {
            let (tx, rx) = std::sync::mpsc::channel();
            for number in 0..8 {
                let (lock, tx) = (&lock, tx.clone());
                let wait = move || {
                    tx.send(thread_id()).expect("the test listens");
                    drop(tx);
                    trace_script::locks(|| drop(lock.lock()));
                };
                let builder = thread::Builder::new().name(format!("waiter {number}"));
                drop(builder.spawn_scoped(scope, wait).expect("there can be eight"));
            }
            let of_receiver = tx.clone();
            let receive = move || {
                of_receiver.send(thread_id()).expect("the test listens");
                drop(of_receiver);
                trace_script::receives(|| assert!(receiver.recv().is_err()));
            };
            drop(thread::Builder::new().name("receiver".into()).spawn_scoped(scope, receive));
            drop(tx);
            now_asleep(rx);
            self_check::want_other_formats(true);
            trace::start(kept.clone()).expect("no other trace goes on");
            trace_script::unlocks(|| drop(guard.take()));
            drop(sender);
            scope.spawn(|| ()).join().expect("it does nothing");
            std::thread::sleep(Duration::from_millis(20));
            stats = Some(trace::stop().expect("a vector takes everything"));
        });
        let trace = valid(kept.bytes(), stats.expect("it was stopped"));
        trace.assert_whole();
        assert_eq!(trace.parsed.count(EventType::GoBlock), 9, "those that waited before");
        check("started_while_all_wait", &trace, &[]);
        // In the second format Go counts no delays before the first start of a goroutine that was there before.
        let first = readings("started_while_all_wait", &trace).into_iter().filter(|it| it.format == "v1");
        first.for_each(|it| check_profiles(&it.go, &it.path, &[("sched", &["unlocks"])]));
    });
}

/// Every thread waits when the trace stops.
#[test]
fn stopped_while_all_wait() {
    child::isolated("stopped_while_all_wait", || {
        let lock = Mutex::new(());
        let (_sender, receiver) = sync_channel::<()>(0);
        let mut trace = None;
        thread::scope(|scope| {
            let guard = lock.lock();
            trace = Some(record(|| {
                let (tx, rx) = std::sync::mpsc::channel();
                for _ in 0..8 {
                    let (lock, tx) = (&lock, tx.clone());
                    scope.spawn(move || {
                        tx.send(thread_id()).expect("the test listens");
                        drop(tx);
                        trace_script::locks(|| drop(lock.lock()));
                    });
                }
                drop(tx);
                now_asleep(rx);
                trace_script::receives(|| receiver.recv_timeout(Duration::from_millis(5)).ok());
            }));
            drop(guard);
        });
        let trace = trace.expect("it was recorded");
        trace.assert_whole();
        assert_eq!(trace.parsed.count(EventType::GoEnd), 0);
        assert_eq!(trace.parsed.count(EventType::GoBlockSync), 8);
        check("stopped_while_all_wait", &trace, &[("sync", &["receives"])]);
    });
}

/// Runs threads that begin, do one of each operation, and end.
fn churn(lock: &Mutex<u64>, round: usize) {
    let task = trace::Task::new("round");
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        for number in 0..3 {
            let (sender, task) = (sender.clone(), &task);
            scope.spawn(move || {
                let _entered = task.enter();
                let _region = trace::start_region("work");
                *lock.lock() += 1;
                if number == 0 && round.is_multiple_of(4) {
                    thread::yield_now();
                    trace::syscall(|| std::thread::sleep(Duration::from_micros(20)));
                }
                trace::log("round", "done");
                sender.send(black_box(vec![number; 100])).expect("the test receives");
            });
        }
        drop(sender);
        receiver.iter().for_each(|numbers| drop(black_box(numbers)));
    });
}

/// A hundred traces while threads begin and end, a thousand in a long run: each trace is valid, and some are checked
/// with Go's tools. There are fewer in a debug build, which takes a third of a second for the function names of each
/// trace.
#[test]
fn many_starts_under_load() {
    child::isolated("many_starts_under_load", || {
        let (traces, shown) = if cfg!(debug_assertions) { (30, 2) } else { (100, 5) };
        let (traces, shown) = rounds((traces, shown), (1000, 15));
        let (background, lock, rounds) = (Background::default(), Mutex::new(0), AtomicUsize::new(0));
        let mut events = 0;
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for _ in 0..2 {
                scope.spawn(|| background.repeat(|| churn(&lock, rounds.fetch_add(1, Relaxed))));
            }
            for number in 0..traces {
                let trace = record(|| {
                    // Some traces have no length, some last a few rounds.
                    let until = rounds.load(Relaxed) + number % 3;
                    while rounds.load(Relaxed) < until {
                        std::thread::yield_now();
                    }
                });
                trace.assert_whole_but_for_what_began_before();
                events += trace.parsed.events().len();
                if number % (traces / shown) == traces / shown - 1 {
                    for Reading { go, path, parsed, .. } in readings("many_starts_under_load", &trace) {
                        check_events(&go, &path, &parsed);
                        check_pages(&go, &path);
                    }
                }
            }
        });
        assert!(events / traces > 10, "{events} events in {traces} traces: nothing went on");
    });
}

/// A writer that accepts no bytes until the gate is open.
struct Gated<'a>(Kept, &'a AtomicBool);

impl Write for Gated<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        until("the gate is open", || self.1.load(Relaxed));
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// More is recorded than the writer accepts: whole buffers are dropped, and the rest is valid.
#[test]
fn dropped_buffers() {
    fn flood() {
        let _task = trace::Task::new("flood");
        for _ in 0..200 {
            let _region = trace::start_region("inside");
            trace::log("flood", "a message of some length, that fills buffers soon");
        }
    }
    child::isolated("dropped_buffers", || {
        static OPEN: AtomicBool = AtomicBool::new(true);
        let kept = Kept::default();
        let options = Options { buffer_memory: 1 << 20, ..Options::default() };
        self_check::want_other_formats(true);
        trace::start_with(Gated(kept.clone(), &OPEN), options).expect("no other trace goes on");
        OPEN.store(false, Relaxed);
        let (lock, background, begun) = (Mutex::new(0), Background::default(), AtomicUsize::new(0));
        let begun = &begun;
        // Some 9 KB each: each thread records twice the buffer memory, or more, before the gate is open.
        let [while_closed, while_open] = rounds([250, 50], [500, 100]);
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for tasks in [while_closed, while_open] {
                let floods = [0, 1].map(|number| {
                    scope.spawn(move || {
                        for _ in 0..tasks {
                            flood();
                            begun.fetch_or(1 << number, Relaxed);
                            if number == 0 {
                                rtprof::collector::collect(|| rtprof::collector::stop_the_world(|| ()));
                                rtprof::collector::sweep(|sweep| sweep.swept(1));
                            }
                        }
                    })
                });
                if tasks == while_closed {
                    // Each new thread takes a buffer: by then the floods have theirs.
                    until("both have begun", || begun.load(Relaxed) == 0b11);
                    scope.spawn(|| background.repeat(|| churn(&lock, 0)));
                }
                for flood in floods {
                    flood.join().expect("it ends well");
                }
                OPEN.store(true, Relaxed);
            }
        });
        let stats = trace::stop().expect("it takes everything in the end");
        assert!(stats.dropped_events > 0 && stats.dropped_buffers > 0, "{stats:?}");
        let trace = valid(kept.bytes(), stats);
        trace.assert_in_order();
        assert!(trace.parsed.count(EventType::UserLog) > 1000, "{stats:?}");
        for Reading { go, path, parsed, .. } in readings("dropped_buffers", &trace) {
            check_events(&go, &path, &parsed);
            check_profiles(&go, &path, &[]);
            check_pages(&go, &path);
        }
    });
}

/// Several generations, with all operations in them.
#[test]
fn a_longer_one() {
    child::isolated("a_longer_one", || {
        let (background, lock, rounds) = (Background::default(), Mutex::new(0), AtomicUsize::new(0));
        let kept = recording::start(Options::default());
        // Few enough events for Go's pages.
        let work = || {
            churn(&lock, rounds.fetch_add(1, Relaxed));
            std::thread::sleep(Duration::from_millis(20));
        };
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            (0..2).for_each(|_| drop(scope.spawn(|| background.repeat(work))));
            std::thread::sleep(stress());
            kept.until_written(1);
        });
        let stats = trace::stop().expect("a vector takes everything");
        let trace = valid(kept.bytes(), stats);
        trace.assert_whole();
        trace.assert_in_order();
        // About one in a second, by a thread that may have to wait for a core.
        assert!(trace.stats.generations >= 2, "{:?}", trace.stats);
        check("a_longer_one", &trace, &[("sync", &["churn"]), ("syscall", &["churn"])]);
        // A file that was cut shows the generations before the cut.
        let cut = saved("interop-cut", &trace.bytes[..trace.bytes.len() - 1]);
        let newest = go::trace_toolchains("a_longer_one").into_iter().find(|(_, format)| *format == "v2");
        if let Some((go, _)) = newest {
            check_profiles(&go, &cut, &[("sync", &["churn"])]);
        }
    });
}
