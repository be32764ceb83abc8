//! Truth of all other waits: condition variables, once, barriers, semaphores, channels, joins, parks; not sleeps. And
//! the creators of threads.
//!
//! As in truth.rs, profiles are compared with the times that the threads have measured.

use std::hint::black_box;
use std::sync::mpsc as other;
use std::thread::sleep;
use std::time::Duration;

use rtprof::sync::{Barrier, Condvar, Mutex, Once, Semaphore, mpsc};
use rtprof::thread;
use rtprof::trace::{self, WaitKind};
use test_support::contention::{
    About, Moment, NONE, Seen, in_vain, leaves, queue, record_everything, written,
};
use test_support::profile::Profile;
use test_support::{child, sample_types, until};

const HOLD: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(100);

type Play<'a> = Box<dyn FnOnce() + Send + 'a>;

macro_rules! roles {
    ($($role:ident)*) => {
        $(#[inline(never)]
        fn $role(play: Play<'_>) {
            play();
            // Keeps the function from being merged with another one.
            black_box(stringify!($role));
        })*
    };
}

roles! {
    waits_for_condition waits_for_condition_in_vain waits_for_once waits_for_barrier acquires acquires_in_vain
    receives receives_until_disconnected receives_in_vain sends meets waits_for_thread parks parks_in_vain
    sleeps waits_for_scope waits_elsewhere finds_at_once
}

/// The expected length of each kind of wait.
#[derive(Default)]
struct Expected(Vec<(&'static str, About)>);

impl Expected {
    /// Adds a wait that ends at an instant of `wake`.
    fn woken<'a>(&mut self, name: &'static str, role: fn(Play<'a>), wait: Play<'a>, wake: impl FnOnce()) {
        let (began, woken) = meet(role, wait, wake);
        self.0.push((name, woken.since(began)));
    }

    /// Adds a wait that ends when another thread has acted, some time after `wake`.
    fn let_go<'a>(&mut self, name: &'static str, role: fn(Play<'a>), wait: Play<'a>, wake: impl FnOnce()) {
        let (began, woken) = meet(role, wait, wake);
        self.0.push((name, About { most: Moment::now().since(began).most, ..woken.since(began) }));
    }

    /// Adds a wait that ends after `TIMEOUT`.
    fn in_vain<'a>(&mut self, name: &'static str, role: fn(Play<'a>), wait: Play<'a>) {
        self.0.push((name, in_vain(TIMEOUT, |_| role(wait))));
    }

    #[track_caller]
    fn check(self) {
        let seen = Seen::now();
        for (name, expected) in &self.0 {
            let waits = seen.blocked(name);
            assert_eq!(waits.count, 1, "{name}");
            expected.check(name, waits.nanos);
        }
        assert_eq!(seen.blocked("").count, self.0.len() as i64, "and nothing else");
        assert_eq!(seen.charged(""), NONE, "none of them is a lock's");
        let first = leaves(&written("block"));
        assert!(first.iter().all(|leaf| leaf == "{{closure}}" || leaf.starts_with("{closure#")), "{first:?}");
    }
}

/// Returns when the wait began and when it was ended, after the waiting thread is done.
fn meet<'a>(role: fn(Play<'a>), wait: Play<'a>, wake: impl FnOnce()) -> (Moment, Moment) {
    std::thread::scope(|scope| {
        let waiter = queue(scope, move || role(wait));
        sleep(HOLD);
        (waiter.began, Moment::of(wake))
    })
}

#[test]
fn condition_variables_and_once_and_barriers() {
    child::isolated("condition_variables_and_once_and_barriers", || {
        record_everything();
        let mut expected = Expected::default();
        let (lock, changed) = (&Mutex::new(false), &Condvar::new());
        let wait = move || changed.wait_while(&mut lock.lock(), |done| !*done);
        expected.woken("waits_for_condition", waits_for_condition, Box::new(wait), || {
            *lock.lock() = true;
            changed.notify_all();
        });
        let wait = || assert!(changed.wait_for(&mut lock.lock(), TIMEOUT).timed_out());
        expected.in_vain("waits_for_condition_in_vain", waits_for_condition_in_vain, Box::new(wait));

        let (once, (go, start), (begun, begins)) = (&Once::new(), other::channel(), other::channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                once.call_once(|| {
                    begun.send(()).expect("the test listens");
                    start.recv().expect("the test says when");
                });
            });
            begins.recv().expect("the other thread is in");
            let wait = Box::new(move || once.call_once(|| unreachable!("it is done once")));
            expected.let_go("waits_for_once", waits_for_once, wait, || go.send(()).expect("it waits"));
        });

        let barrier = &Barrier::new(2);
        let wait = Box::new(move || assert!(!barrier.wait().is_leader()));
        expected.woken("waits_for_barrier", waits_for_barrier, wait, || assert!(barrier.wait().is_leader()));
        expected.check();
    });
}

#[test]
fn semaphores_and_channels() {
    child::isolated("semaphores_and_channels", || {
        record_everything();
        let mut expected = Expected::default();
        let permits = &Semaphore::new(2);
        let wait = Box::new(move || drop(permits.acquire_many(3)));
        expected.woken("acquires", acquires, wait, || permits.add_permits(1));
        let wait = Box::new(move || assert!(permits.try_acquire_many_for(4, TIMEOUT).is_none()));
        expected.in_vain("acquires_in_vain", acquires_in_vain, wait);

        let (send, receive) = mpsc::channel();
        let wait = Box::new(move || assert_eq!(receive.recv(), Ok(7)));
        expected.woken("receives", receives, wait, || send.send(7).expect("it listens"));
        let (_send, receive) = mpsc::channel::<()>();
        let timeout = Err(mpsc::RecvTimeoutError::Timeout);
        let wait = Box::new(move || assert_eq!(receive.recv_timeout(TIMEOUT), timeout));
        expected.in_vain("receives_in_vain", receives_in_vain, wait);
        let (send, receive) = mpsc::channel();
        send.send(1).expect("it is still there");
        let wait = Box::new(move || assert_eq!(receive.into_iter().count(), 1));
        let name = "receives_until_disconnected";
        expected.woken(name, receives_until_disconnected, wait, || drop(send));

        let (send, receive) = mpsc::sync_channel(1);
        let wait = Box::new(move || (1..3).for_each(|number| send.send(number).expect("it listens")));
        expected.woken("sends", sends, wait, || assert_eq!(receive.recv(), Ok(1)));
        let (send, receive) = mpsc::sync_channel(0);
        let wait = Box::new(move || send.send(5).expect("it listens"));
        expected.woken("meets", meets, wait, || assert_eq!(receive.recv(), Ok(5)));
        expected.check();
    });
}

#[test]
fn threads_and_parks_but_not_sleeps() {
    child::isolated("threads_and_parks_but_not_sleeps", || {
        record_everything();
        let mut expected = Expected::default();
        let (go, start) = other::channel::<()>();
        let thread = thread::spawn(move || start.recv().expect("the test says when"));
        let wait = Box::new(move || thread.join().expect("it ends well"));
        expected.let_go("waits_for_thread", waits_for_thread, wait, || go.send(()).expect("it waits"));

        let (go, start) = other::channel::<()>();
        let wait = Box::new(move || {
            thread::scope(|scope| {
                scope.spawn(move || start.recv().expect("the test says when"));
            });
        });
        expected.let_go("waits_for_scope", waits_for_scope, wait, || go.send(()).expect("it waits"));

        let (who, parked) = other::channel();
        let wait = Box::new(move || {
            who.send(thread::current()).expect("the test listens");
            thread::park();
        });
        expected.let_go("parks", parks, wait, || parked.recv().expect("it said so").unpark());
        // std's scopes leave a token behind now and then; this consumes it.
        std::thread::park_timeout(Duration::ZERO);
        expected.in_vain("parks_in_vain", parks_in_vain, Box::new(|| thread::park_timeout(TIMEOUT)));

        sleeps(Box::new(|| thread::sleep(HOLD)));
        // A join of a finished thread does not wait.
        let thread = thread::spawn(|| ());
        while !thread.is_finished() {
            sleep(Duration::from_millis(1));
        }
        thread.join().expect("it ended well");
        expected.check();
        assert_eq!(Seen::now().blocked("sleeps"), NONE, "nobody makes it wait");
    });
}

/// Waits that the program announces, and announcements that were no waits.
#[test]
fn what_is_not_ours() {
    child::isolated("what_is_not_ours", || {
        record_everything();
        let mut expected = Expected::default();
        let (go, start) = other::channel::<()>();
        let wait =
            Box::new(move || trace::wait(WaitKind::Recv, || start.recv()).expect("the test says when"));
        // The wait ends when the thread runs again: its waker is not known.
        expected.let_go("waits_elsewhere", waits_elsewhere, wait, || go.send(()).expect("it waits"));
        let wait = Box::new(|| trace::wait(WaitKind::Net, || sleep(HOLD)));
        waits_elsewhere(wait);
        expected.check();

        // An announcement that the kernel interrupts may take as long as a wait.
        let counted = || Seen::now().blocked("finds_at_once").count;
        until("most of them have not waited", || {
            let before = counted();
            (0..1000).for_each(|_| finds_at_once(Box::new(|| trace::wait(WaitKind::Recv, || ()))));
            counted() - before < 500
        });
    });
}

#[inline(never)]
fn creates_three() {
    let mut threads = Vec::new();
    for number in 0..3 {
        threads.push(thread::spawn(move || assert!(black_box(number) < 3)));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    black_box("three");
}

#[inline(never)]
fn creates_two_in_a_scope() {
    thread::scope(|scope| {
        scope.spawn(|| black_box(1));
        thread::Builder::new().name("second".into()).spawn_scoped(scope, || ()).expect("it can be made");
    });
    black_box("two");
}

#[inline(never)]
fn fails_to_create() {
    let result = thread::Builder::new().stack_size(1 << 50).spawn(|| ());
    assert!(result.is_err(), "no machine has that much");
}

/// Each thread is counted at its creator; a thread that the system refused is not counted, and std's threads are not
/// known.
#[test]
fn threads_are_counted_at_their_creators() {
    child::isolated("threads_are_counted_at_their_creators", || {
        creates_three();
        creates_two_in_a_scope();
        fails_to_create();
        std::thread::spawn(|| ()).join().expect("it ends well");
        let mut bytes = Vec::new();
        let profile = rtprof::pprof::lookup("threadcreate").expect("it is built in");
        profile.write_to(&mut bytes, 0).expect("a vector takes everything");
        let written = Profile::read(&bytes);
        assert_eq!(written.sample_types(), sample_types::of("threadcreate"));
        let count = |name: &str| written.totals_of(name)[0];
        let names = ["creates_three", "creates_two_in_a_scope", "fails_to_create", ""];
        assert_eq!(names.map(count), [3, 2, 0, 5]);
        let mut first = leaves(&written);
        first.dedup();
        first.sort();
        assert!(first.iter().all(|leaf| leaf == "creates_three" || leaf.starts_with('{')), "{first:?}");
        assert_eq!((profile.count(), rtprof::thread_create_profile().len()), (5, 5));
        let mut short = vec![rtprof::StackRecord::default(); 4];
        assert_eq!(rtprof::thread_create_profile_into(&mut short), (5, false));
    });
}
