//! Traces of programs with std's locks, channels and threads.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, mpsc};
use std::thread::{Builder, sleep, spawn};
use std::time::Duration;

use rtprof_trace_check::EventType;
use test_support::child;
use test_support::contention::wait_until_asleep;
use test_support::contention::{Moment, thread_id};
use test_support::recording::{Trace, has, record};

#[inline(never)]
fn receives(receive: &mpsc::Receiver<()>) {
    black_box("receives");
    receive.recv().expect("there is a sender");
    black_box("receives");
}

#[inline(never)]
fn sends(send: &mpsc::Sender<()>) {
    black_box("sends");
    send.send(()).expect("there is a receiver");
    black_box("sends");
}

#[inline(never)]
fn works_without_a_name(begun: &mpsc::Sender<i32>, receive: &mpsc::Receiver<()>) {
    begun.send(thread_id()).expect("somebody waits for it");
    receives(receive);
    sleep(Duration::from_millis(1));
    black_box("works_without_a_name");
}

/// Records a thread of std, with or without a name, that waits, is woken by the sending thread, sleeps and ends.
/// Returns the trace, and when the wait began and ended.
pub(crate) fn recorded(name: Option<&str>) -> (Trace, Moment, Moment) {
    let (mut began, mut woke) = (None, None);
    let trace = record(|| {
        let ((begun, begins), (send, receive)) = (mpsc::channel(), mpsc::channel());
        let builder = name.map_or_else(Builder::new, |name| Builder::new().name(name.to_owned()));
        let work = move || works_without_a_name(&begun, &receive);
        began = Some(Moment::of(|| {
            builder.spawn(work).map(drop).expect("there is a thread to be had");
            wait_until_asleep(begins.recv().expect("it begins"));
        }));
        woke = Some(Moment::of(|| sends(&send)));
        // The thread has ended when its end of the channel is gone.
        assert!(begins.recv().is_err());
    });
    (trace, began.expect("it began"), woke.expect("it was woken"))
}

#[test]
fn a_wait_has_its_waker() {
    child::isolated("a_wait_has_its_waker", || {
        for name in [None, Some("worker")] {
            let (trace, began, woke) = recorded(name);
            trace.assert_whole();
            trace.assert_in_order();
            let unnamed = || {
                let is_it = |name: &str| name.contains("traces::recorded") && name.contains("closure");
                let all: Vec<_> = trace.parsed.goroutines().collect();
                let found: Vec<_> = all.iter().filter(|(_, name)| is_it(name)).collect();
                assert_eq!(found.len(), 1, "{all:?}");
                found[0].0
            };
            let worker = name.map_or_else(unnamed, |name| trace.goroutine(name));
            let story = trace.story(worker);
            let of = |kind: EventType| story.iter().copied().filter(move |event| event.event_type() == kind);
            assert_eq!(of(EventType::GoCreate).count(), 1, "{story:#?}");
            assert!(has(of(EventType::GoCreate).next().unwrap(), "recorded"), "{story:#?}");
            let waits: Vec<_> = of(EventType::GoBlockSync).filter(|block| has(*block, "receives")).collect();
            assert_eq!(waits.len(), 1, "{story:#?}");
            let wakes: Vec<_> = of(EventType::GoUnblock).filter(|wake| has(*wake, "sends")).collect();
            assert_eq!(wakes.len(), 1, "{story:#?}");
            assert_ne!(wakes[0].g(), worker);
            let waited = wakes[0].time() - waits[0].time();
            woke.since(began).check("the wait", waited as i64);
            assert_eq!(of(EventType::GoSleep).count(), 1, "{story:#?}");
        }
    });
}

/// Threads that have waited since before the trace do not run in it, whether their waits are recorded or not.
#[test]
fn who_waits_is_not_drawn_as_running() {
    child::isolated("who_waits_is_not_drawn_as_running", || {
        let (lock, condition) = (Mutex::new(false), Condvar::new());
        let (reads, mut writes) = std::io::pipe().expect("there are descriptors");
        std::thread::scope(|scope| {
            let (tx, rx) = mpsc::channel();
            let tell_too = tx.clone();
            let (lock, condition) = (&lock, &condition);
            let waits = move || {
                tx.send(thread_id()).unwrap();
                drop(condition.wait_while(lock.lock().unwrap(), |is_over| !*is_over).unwrap());
            };
            Builder::new().name("waits".into()).spawn_scoped(scope, waits).unwrap();
            let reader = move || {
                tell_too.send(thread_id()).unwrap();
                let mut byte = [0];
                std::io::Read::read_exact(&mut { reads }, &mut byte).unwrap();
            };
            Builder::new().name("reads".into()).spawn_scoped(scope, reader).unwrap();
            rx.iter().take(2).for_each(wait_until_asleep);
            let trace = record(|| {
                spawn(|| black_box(())).join().unwrap();
            });
            for name in ["waits", "reads"] {
                let story = trace.story(trace.goroutine(name));
                let last = story.last().expect("it was introduced").event_type();
                assert!([EventType::GoSysBlock, EventType::GoBlock].contains(&last), "{story:#?}");
            }
            *lock.lock().unwrap() = true;
            condition.notify_all();
            std::io::Write::write_all(&mut writes, b"x").unwrap();
        });
    });
}

struct SleepsAtTheEnd(Cell<bool>);

impl Drop for SleepsAtTheEnd {
    fn drop(&mut self) {
        if self.0.get() {
            sleep(Duration::from_millis(1));
        }
    }
}

thread_local! {
    static SLEEPS_AT_THE_END: SleepsAtTheEnd = const { SleepsAtTheEnd(Cell::new(false)) };
}

/// std waits for its locks before it calls the function of a thread and after it, if many threads begin and end at once. Such
/// a wait, and a wait in a destructor, belongs to the goroutine whose creation `rtprof::thread` has recorded.
#[test]
fn a_thread_is_one_goroutine_from_its_first_wait_to_its_last() {
    child::isolated("a_thread_is_one_goroutine_from_its_first_wait_to_its_last", || {
        const CREATORS: usize = 8;
        const THREADS: usize = 50;
        let name = |creator, thread| format!("a name that is long {creator}.{thread}");
        let named = |creator, thread| rtprof::thread::Builder::new().name(name(creator, thread));
        let trace = record(|| {
            let create = |creator| {
                (0..THREADS).for_each(|thread| {
                    let thread = named(creator, thread).spawn(|| SLEEPS_AT_THE_END.with(|it| it.0.set(true)));
                    thread.expect("there is a thread to be had").join().expect("it does nothing");
                });
            };
            std::thread::scope(|scope| {
                (0..CREATORS).for_each(|creator| drop(scope.spawn(move || create(creator))))
            });
        });
        trace.assert_whole();
        for (creator, thread) in
            (0..CREATORS).flat_map(|creator| (0..THREADS).map(move |thread| (creator, thread)))
        {
            let goroutine = trace.goroutine(&name(creator, thread));
            let changes: Vec<_> = trace.story(goroutine).iter().map(|event| event.event_type()).collect();
            assert_eq!(changes.first(), Some(&EventType::GoCreate), "{changes:?}");
            assert!(changes.contains(&EventType::GoSleep), "{changes:?}");
            assert_eq!(changes.last(), Some(&EventType::GoEnd), "{changes:?}");
        }
        // The kernel's names are cut.
        let all = trace.parsed.goroutines().filter(|(_, name)| name.starts_with("a name that is"));
        assert_eq!(all.count(), CREATORS * THREADS);
    });
}
