//! Threads behave as std's, and their goroutines show their states.
#![allow(clippy::disallowed_methods, reason = "these are no hooks")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::goroutine::{self, LiveGoroutine};
use rtprof_runtime::labels;

use super::*;

const SOON: Duration = Duration::from_secs(60);

/// The goroutine of this name, once it is as `wanted`.
fn seen(name: &str, wanted: impl Fn(&LiveGoroutine) -> bool) -> LiveGoroutine {
    let started = Instant::now();
    loop {
        let found = goroutine::all().find(|goroutine| goroutine.name == name);
        match found {
            Some(goroutine) if wanted(&goroutine) => return goroutine,
            _ => assert!(started.elapsed() < SOON, "{name} is {found:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn waits_for(reason: WaitReason) -> impl Fn(&LiveGoroutine) -> bool {
    move |goroutine| goroutine.waiting.is_some_and(|(waits_for, _)| waits_for == reason)
}

fn own() -> LiveGoroutine {
    let id = goroutine::current().expect("there is memory").id();
    goroutine::all().find(|goroutine| goroutine.id == id).expect("it is live")
}

#[test]
fn results_and_panics_come_out_of_join() {
    let thread = spawn(|| 7);
    while !thread.is_finished() {
        yield_now();
    }
    assert_eq!(thread.join().unwrap(), 7);
    let panicked = spawn(|| -> u8 { std::panic::resume_unwind(Box::new("on purpose")) }).join();
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    let debug = (format!("{:?}", spawn(|| ())), format!("{:?}", std::thread::spawn(|| ())));
    assert_eq!(debug.0, debug.1);
}

#[test]
fn a_thread_has_a_goroutine_with_its_name_and_creator() {
    let named = |builder: Builder| builder.spawn(|| (own(), current().id())).unwrap();
    let thread = named(Builder::new().name("named in full, beyond fifteen bytes".into()).stack_size(200_000));
    let (id, name) = (thread.thread().id(), thread.thread().name().map(String::from));
    let (goroutine, from_within) = thread.join().unwrap();
    assert_eq!(from_within, id);
    assert_eq!(Some(goroutine.name), name);
    assert!(!goroutine.created_by.expect("there is memory").stack().is_empty());

    let (unnamed, _) = named(Builder::new()).join().unwrap();
    assert_eq!(unnamed.name, "");
    assert_ne!(unnamed.id, goroutine.id);
    assert!(goroutine::all().all(|live| live.id != goroutine.id && live.id != unnamed.id), "both have ended");
}

/// As in Go's `TestDo`: a request's helpers are charged to the request.
#[test]
fn a_thread_has_the_labels_of_its_creator() {
    fn tenant() -> Option<String> {
        labels::label("tenant")
    }
    let (go_on, rx) = mpsc::channel::<()>();
    let outlives = labels::do_with(labels::labels(&[("tenant", "a")]), || {
        assert_eq!(spawn(tenant).join().unwrap().as_deref(), Some("a"));
        let built = Builder::new().spawn(|| {
            let changed =
                labels::do_with(labels::labels(&[("tenant", "b")]), || spawn(tenant).join().unwrap());
            (changed, tenant())
        });
        assert_eq!(built.unwrap().join().unwrap(), (Some("b".into()), Some("a".into())));
        assert_eq!(scope(|scope| scope.spawn(tenant).join().unwrap()).as_deref(), Some("a"));
        let seen = cfg!(feature = "interpose").then(|| "a".to_owned());
        assert_eq!(std::thread::spawn(tenant).join().unwrap(), seen);
        spawn(move || {
            rx.recv().unwrap_err();
            tenant()
        })
    });
    assert_eq!(tenant(), None);
    drop(go_on);
    assert_eq!(outlives.join().unwrap().as_deref(), Some("a"), "to its own end");
    assert_eq!(spawn(tenant).join().unwrap(), None);
}

#[test]
fn a_thread_that_panics_leaves_no_goroutine() {
    let (send, receive) = mpsc::channel();
    let thread = spawn(move || {
        send.send(own().id).unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(thread.join().is_err());
    let id = receive.recv().unwrap();
    assert!(goroutine::all().all(|live| live.id != id));
}

#[test]
fn the_systems_refusal_is_an_error_as_with_std() {
    let ours = Builder::new().stack_size(usize::MAX / 2).spawn(|| ()).unwrap_err();
    let theirs = std::thread::Builder::new().stack_size(usize::MAX / 2).spawn(|| ()).unwrap_err();
    assert_eq!(ours.raw_os_error(), theirs.raw_os_error());
    let refused = scope(|scope| {
        let refused = Builder::new().stack_size(usize::MAX / 2).spawn_scoped(scope, || ());
        refused.unwrap_err().raw_os_error()
    });
    assert_eq!(refused, theirs.raw_os_error());
    let with_null = || Builder::new().name("a\0b".into()).spawn(|| ());
    assert!(catch_unwind(AssertUnwindSafe(with_null)).is_err(), "std panics too");
}

#[test]
fn unchecked_threads_may_borrow() {
    let text = String::from("borrowed");
    // SAFETY: the thread is joined before the text is dropped.
    let thread = unsafe { Builder::new().spawn_unchecked(|| text.len()) }.unwrap();
    assert_eq!(thread.join().unwrap(), text.len());
}

/// As a library would take a scope from its caller.
fn spawn_into<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    counter: &'env AtomicUsize,
    depth: usize,
) -> ScopedJoinHandle<'scope, usize> {
    scope.spawn(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        if depth > 0 {
            // From within a thread of the scope, and not joined.
            spawn_into(scope, counter, depth - 1);
        }
        depth
    })
}

#[test]
fn scoped_threads_borrow_and_spawn_more() {
    let (mut numbers, text, counter) = (vec![1, 2, 3], String::from("text"), AtomicUsize::new(0));
    let result = scope(|scope| {
        let (first, rest) = numbers.split_at_mut(1);
        scope.spawn(|| first[0] = text.len());
        let handle = Builder::new()
            .name("scoped".into())
            .spawn_scoped(scope, || {
                rest.reverse();
                &*text
            })
            .unwrap();
        assert_eq!(handle.thread().name(), Some("scoped"));
        assert_eq!(format!("{handle:?}"), "ScopedJoinHandle { .. }");
        assert!(format!("{scope:?}").starts_with("Scope {"));
        let nested = spawn_into(scope, &counter, 3);
        while !nested.is_finished() {
            yield_now();
        }
        assert_eq!(nested.join().unwrap(), 3);
        handle.join().unwrap()
    });
    assert_eq!((result, numbers), ("text", vec![4, 3, 2]));
    assert_eq!(counter.into_inner(), 4, "the scope has waited for all of them");
}

#[test]
fn a_scope_waits_and_panics_as_std_does() {
    let has_ended = AtomicBool::new(false);
    let ends = || {
        std::thread::sleep(Duration::from_millis(20));
        has_ended.store(true, Ordering::Relaxed);
    };
    let of_function = catch_unwind(AssertUnwindSafe(|| {
        scope(|scope| {
            scope.spawn(ends);
            std::panic::resume_unwind(Box::new("of the function"));
        })
    }));
    assert_eq!(of_function.unwrap_err().downcast_ref(), Some(&"of the function"));
    assert!(has_ended.swap(false, Ordering::Relaxed));
    assert_eq!(own().waiting, None, "the wait is over");

    let of_thread = catch_unwind(AssertUnwindSafe(|| {
        scope(|scope| {
            scope.spawn(ends);
            scope.spawn(|| std::panic::resume_unwind(Box::new("of the thread")));
        })
    }));
    assert_eq!(of_thread.unwrap_err().downcast_ref(), Some(&"a scoped thread panicked"));
    assert!(has_ended.load(Ordering::Relaxed));
    assert_eq!(own().waiting, None);
    let joined = scope(|scope| scope.spawn(|| std::panic::resume_unwind(Box::new(1_u8))).join());
    assert!(joined.is_err(), "and joined, it panics nobody else");
}

#[test]
fn a_goroutine_says_what_it_waits_for() {
    let named = |name: &str, body: fn(mpsc::Receiver<()>)| {
        let (end, ends) = mpsc::channel();
        (Builder::new().name(name.into()).spawn(move || body(ends)).unwrap(), end)
    };
    let (parker, _) = named("parker", |_| {
        park();
        assert_eq!(own().waiting, None);
        park_timeout(SOON);
    });
    let mut before = None;
    for _ in 0..2 {
        let parked = seen("parker", |parker| waits_for(WaitReason::Park)(parker) && parker.waiting != before);
        before = parked.waiting;
        assert!(before.unwrap().1 <= rtprof_runtime::clock::ticks());
        parker.thread().unpark();
    }
    parker.join().unwrap();

    let (joiner, end) = named("joiner", |ends| spawn(move || ends.recv()).join().map(drop).unwrap());
    seen("joiner", waits_for(WaitReason::Join));
    drop(end);
    joiner.join().unwrap();

    let (scoper, end) = named("scoper", |ends| {
        scope(|scope| {
            scope.spawn(move || ends.recv());
            assert_eq!(own().waiting, None, "not as long as its function runs");
        });
    });
    seen("scoper", waits_for(WaitReason::Join));
    drop(end);
    scoper.join().unwrap();
}

#[test]
fn handles_stand_for_those_of_std() {
    let thread = Builder::new().name("unparked".into()).spawn(park).unwrap();
    let std: std::thread::Thread = thread.thread().clone().into();
    assert_eq!((std.id(), std.name()), (thread.thread().id(), Some("unparked")));
    assert_eq!(format!("{std:?}"), format!("{:?}", thread.thread()));
    Thread::from(std).unpark();
    thread.join().unwrap();
}

#[test]
fn nothing_is_a_time_to_sleep_and_to_park() {
    for dur in [Duration::ZERO, Duration::from_nanos(1)] {
        sleep(dur);
        park_timeout(dur);
    }
    current().unpark();
    park_timeout(Duration::MAX);
    current().unpark();
    park();
    let (sleeper, started) = (Builder::new().name("for ever".into()), Instant::now());
    // Not joined: it ends with the process.
    sleeper.spawn(|| sleep(Duration::MAX)).unwrap();
    seen("for ever", waits_for(WaitReason::Sleep));
    assert!(started.elapsed() < SOON);
}

#[test]
fn hooks_work_in_the_destructors_of_thread_locals() {
    struct Parks(mpsc::Sender<Option<u64>>);
    impl Drop for Parks {
        fn drop(&mut self) {
            park_timeout(Duration::from_millis(1));
            self.0.send(goroutine::current().map(|goroutine| goroutine.id())).ok();
        }
    }
    thread_local! {
        static PARKS: Cell<Option<Parks>> = const { Cell::new(None) };
    }
    let (send, receive) = mpsc::channel();
    spawn(|| PARKS.set(Some(Parks(send)))).join().unwrap();
    let id = receive.recv().unwrap().expect("a dying thread is seen too");
    assert!(goroutine::all().all(|live| live.id != id));
}

#[cfg(unix)]
#[test]
fn handles_are_unix_handles() {
    use std::os::unix::thread::JoinHandleExt;
    let thread = spawn(|| ());
    assert_eq!(thread.as_pthread_t(), thread.as_pthread_t());
    thread.join().unwrap();
}
