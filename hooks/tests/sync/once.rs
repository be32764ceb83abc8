use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use rtprof_hooks::sync::{Once, OnceState};
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::wait_reason::WaitReason;

use crate::watched::{Watched, start, until};

fn poisoned() -> Once {
    let once = Once::new();
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("on purpose")))).is_err());
    once
}

#[test]
fn it_is_called_once() {
    static ONCE: Once = Once::new();
    let mut calls = 0;
    assert_eq!((ONCE.state(), ONCE.is_completed()), (OnceState::New, false));
    ONCE.call_once(|| {
        calls += 1;
        assert_eq!((ONCE.state(), ONCE.is_completed()), (OnceState::InProgress, false));
    });
    ONCE.call_once(|| calls += 1);
    ONCE.call_once_force(|_| calls += 1);
    assert_eq!(calls, 1);
    assert_eq!((ONCE.state(), ONCE.is_completed()), (OnceState::Done, true));
    assert!(ONCE.state().done() && !ONCE.state().poisoned());
    assert_eq!(format!("{ONCE:?}"), "Once { state: Done }");
}

#[test]
fn a_panic_poisons_it_until_it_is_forced() {
    let once = poisoned();
    assert_eq!((once.state(), once.is_completed()), (OnceState::Poisoned, false));
    let again = catch_unwind(AssertUnwindSafe(|| once.call_once(|| unreachable!("it is poisoned"))));
    let text = *again.unwrap_err().downcast::<&str>().expect("a text");
    assert!(text.contains("earlier call") && text.contains("call_once_force"), "{text}");

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        once.call_once_force(|state| {
            assert!(state.poisoned());
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err() && once.state().poisoned(), "so it stays");
    let mut before = None;
    once.call_once_force(|state| before = Some(state));
    assert_eq!((before, once.state()), (Some(OnceState::Poisoned), OnceState::Done));
    once.call_once(|| unreachable!("it is done"));

    let fresh = Once::default();
    fresh.call_once_force(|state| before = Some(state));
    assert_eq!(before, Some(OnceState::New));
}

#[test]
fn others_wait_for_the_one_that_is_at_it_and_see_what_it_did() {
    let shared = Arc::new((Once::new(), AtomicUsize::new(0)));
    let (finish, may_finish) = mpsc::channel::<()>();
    let (enter, has_entered) = mpsc::channel();
    let runs = start({
        let shared = shared.clone();
        move || {
            shared.0.call_once(|| {
                enter.send(()).unwrap();
                may_finish.recv().unwrap();
                shared.1.store(7, Relaxed);
            });
        }
    });
    has_entered.recv().unwrap();
    let waits = [false, false, true].map(|forces| {
        let shared = shared.clone();
        let thread = start(move || {
            if forces {
                shared.0.call_once_force(|_| unreachable!("the first one does it"));
            } else {
                shared.0.call_once(|| unreachable!("the first one does it"));
            }
            shared.1.load(Relaxed)
        });
        thread.until_it_waits(WaitReason::Once);
        thread
    });
    finish.send(()).unwrap();
    runs.end();
    assert_eq!(waits.map(Watched::end), [7, 7, 7]);
}

/// How many of these threads show that they do.
fn waiting_for_once(threads: &[u32]) -> usize {
    goroutine::all()
        .filter(|own| threads.contains(&own.thread_id))
        .filter(|own| own.waiting.is_some_and(|(reason, _)| reason == WaitReason::Once))
        .count()
}

#[test]
fn who_waits_for_one_that_panics_panics_or_tries() {
    let once = Arc::new(Once::new());
    let (finish, may_finish) = mpsc::channel::<()>();
    let (enter, has_entered) = mpsc::channel();
    let panics = start({
        let once = once.clone();
        move || {
            once.call_once(|| {
                enter.send(()).unwrap();
                may_finish.recv().unwrap();
                panic!("on purpose");
            });
        }
    });
    has_entered.recv().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let forced = Arc::new(std::sync::Mutex::new(Vec::new()));
    let forces = [(); 3].map(|()| {
        let (once, calls, forced) = (once.clone(), calls.clone(), forced.clone());
        let thread = start(move || {
            forced.lock().unwrap().push(goroutine::current().expect("there is memory").thread_id());
            once.call_once_force(|state| {
                assert!(state.poisoned());
                calls.fetch_add(1, Relaxed);
                // The other two wait once more, and it shows.
                until("the second wait", || waiting_for_once(&forced.lock().unwrap()) == 2);
            });
        });
        thread.until_it_waits(WaitReason::Once);
        thread
    });
    finish.send(()).unwrap();
    assert!(panics.result().is_err());
    forces.into_iter().for_each(Watched::end);
    assert_eq!(calls.load(Relaxed), 1);
    assert!(once.is_completed());
}

#[test]
fn plain_callers_that_waited_panic_too() {
    let once = Arc::new(Once::new());
    let (enter, has_entered) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    let panics = start({
        let once = once.clone();
        move || {
            once.call_once(|| {
                enter.send(()).unwrap();
                may_finish.recv().unwrap();
                panic!("on purpose");
            });
        }
    });
    has_entered.recv().unwrap();
    let waits = [(); 2].map(|()| {
        let once = once.clone();
        let thread = start(move || once.call_once(|| unreachable!("it is poisoned")));
        thread.until_it_waits(WaitReason::Once);
        thread
    });
    finish.send(()).unwrap();
    assert!(panics.result().is_err());
    assert!(waits.map(Watched::result).iter().all(Result::is_err));
}

/// Many objects, each called by all threads at once: one of them runs, and all see it done.
#[test]
fn of_many_callers_at_once_one_runs() {
    const THREADS: usize = 4;
    const OBJECTS: usize = 3000;
    let objects: Vec<_> = (0..OBJECTS).map(|_| (Once::new(), AtomicUsize::new(0))).collect();
    let objects = Arc::new(objects);
    let threads = [(); THREADS].map(|()| {
        let objects = objects.clone();
        start(move || {
            for (once, calls) in objects.iter() {
                once.call_once(|| {
                    calls.fetch_add(1, Relaxed);
                    // Gives the others time to come and sleep.
                    if std::ptr::from_ref(once).addr().is_multiple_of(7) {
                        std::thread::yield_now();
                    }
                });
                assert_eq!(calls.load(Relaxed), 1);
            }
        })
    });
    threads.into_iter().for_each(Watched::end);
}
