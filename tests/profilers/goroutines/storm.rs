//! Threads that begin and end as fast as they can, during continuous snapshots and signals of the program.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Instant;

#[cfg(target_arch = "x86_64")]
use rtprof::GoroutineRecord;
use rtprof::{goroutine_profile, num_goroutine, thread};
use rtprof_runtime::goroutine;
use test_support::{Background, child, stress, until};
#[cfg(target_arch = "x86_64")]
use test_support::{PATIENCE, foreign_stack::switches_stacks};

use super::asked::start;

/// Threads that live at one time.
const AT_ONCE: usize = 8;
const LEAST_SNAPSHOTS: usize = 200;

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Relaxed);
}

/// Sends a signal that is queued, so that each signal is handled. Returns `false` if the queue is full.
fn send(signal: libc::c_int, value: usize) -> bool {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
    // SAFETY: the program has installed a handler for the signal.
    unsafe { libc::sigqueue(libc::getpid(), signal, value) == 0 }
}

/// Checks the text of `goroutine?debug=2`: each goroutine is there once, with a stack or the reason why it has none.
fn dump_is_whole(names: &[&str]) {
    let mut text = Vec::new();
    let profile = rtprof::pprof::lookup("goroutine").expect("it is built in");
    profile.write_to(&mut text, 2).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("it is text");
    let mut ids = HashSet::new();
    for goroutine in text.trim_end().split("\n\n").filter(|part| part.starts_with("goroutine ")) {
        let (head, stack) = goroutine.split_once(":\n").unwrap_or_else(|| panic!("no stack: {goroutine}"));
        let id = head.split(' ').nth(1).and_then(|id| id.parse::<u64>().ok());
        assert!(id.is_some_and(|id| ids.insert(id)), "{head}: twice, or no number, in {text}");
        assert!(head.ends_with(']') && stack.contains("\n\t"), "{goroutine}");
    }
    for name in names {
        assert!(text.contains(&format!("\"{name}\"")), "{name} is not in {text}");
    }
}

#[test]
fn nothing_is_lost_or_left_in_a_storm() {
    child::isolated("nothing_is_lost_or_left_in_a_storm", || {
        let signal = libc::SIGRTMIN() + 3;
        let handler: extern "C" fn(libc::c_int) = count;
        // SAFETY: the handler counts.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        let background = &Background::default();
        let (born, sent) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let before = num_goroutine();
        let mut snapshots = 0;
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            start(scope, "std's", move || {
                background.repeat(|| {
                    let threads: Vec<_> = (0..AT_ONCE).map(|_| std::thread::spawn(|| ())).collect();
                    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
                    born.fetch_add(AT_ONCE, Relaxed);
                });
            });
            start(scope, "ours", move || {
                background.repeat(|| {
                    let (send, receive) = rtprof::sync::mpsc::channel();
                    let sends = |number| {
                        let send = send.clone();
                        thread::spawn(move || send.send(number).expect("it is received"))
                    };
                    let threads: Vec<_> = (0..AT_ONCE).map(sends).collect();
                    drop(send);
                    assert_eq!(receive.iter().count(), AT_ONCE);
                    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
                    born.fetch_add(AT_ONCE, Relaxed);
                });
            });
            let (end, ends) = mpsc::channel::<()>();
            start(scope, "lasts", move || ends.recv().ok());
            start(scope, "sends", move || {
                background.repeat(|| {
                    if send(signal, 7) {
                        sent.fetch_add(1, Relaxed);
                    }
                    std::thread::yield_now();
                });
            });
            let names = ["std's", "ours", "lasts", "sends"];
            until("all have begun", || {
                let all = goroutine_profile();
                names.iter().all(|name| all.iter().any(|goroutine| goroutine.name == *name))
            });
            let slots = goroutine::slots_made();
            let started = Instant::now();
            while snapshots < LEAST_SNAPSHOTS || started.elapsed() < stress() {
                let all = goroutine_profile();
                let threads: HashSet<u32> = all.iter().map(|goroutine| goroutine.thread_id).collect();
                let ids: HashSet<u64> = all.iter().map(|goroutine| goroutine.id).collect();
                assert_eq!(
                    (threads.len(), ids.len()),
                    (all.len(), all.len()),
                    "one is there twice: {all:#?}"
                );
                for name in names {
                    // A thread has the name of its parent for a moment.
                    assert!(all.iter().any(|goroutine| goroutine.name == name), "{name} is not in {all:#?}");
                }
                if snapshots % 10 == 0 {
                    dump_is_whole(&names);
                }
                snapshots += 1;
            }
            // The slots of the threads of a storm, and of a snapshot at the same time.
            let made = goroutine::slots_made();
            assert!(made <= slots.max(64) + 4 * AT_ONCE, "{made} slots after {slots}");
            drop(end);
        });
        until("all have ended", || num_goroutine() == before);
        assert_eq!(goroutine_profile().len(), before);
        until("all signals are handled", || HANDLED.load(Relaxed) == sent.load(Relaxed));
        println!("{} threads, {} signals, {snapshots} snapshots", born.load(Relaxed), sent.load(Relaxed));
        assert!(born.load(Relaxed) > 100 && sent.load(Relaxed) > 100);
    });
}

/// The threads are signalled while their stack pointers point to no memory.
#[cfg(target_arch = "x86_64")]
#[test]
fn threads_that_switch_stacks_answer() {
    child::isolated("threads_that_switch_stacks_answer", || {
        let background = &Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for _ in 0..2 {
                let thread = std::thread::Builder::new().name("switches".into());
                thread.spawn_scoped(scope, || background.repeat(switches_stacks)).unwrap();
            }
            let named = |all: &[GoroutineRecord]| all.iter().filter(|it| it.name == "switches").count();
            until("both are there", || named(&goroutine_profile()) == 2);
            let (started, mut taken, mut whole) = (Instant::now(), 0, 0);
            // Now and then the signal finds a thread on its own stack.
            while taken < LEAST_SNAPSHOTS || started.elapsed() < stress() || whole == 0 {
                assert!(started.elapsed() < PATIENCE, "no stack in {taken} snapshots");
                let all = goroutine_profile();
                assert_eq!(named(&all), 2, "{all:?}");
                whole += all.iter().filter(|it| it.name == "switches" && it.stack().len() > 3).count();
                taken += 1;
            }
        });
    });
}
