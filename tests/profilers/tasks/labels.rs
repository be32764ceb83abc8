//! Labels of tasks: inherited, kept when a task moves between threads, and in every profile.

use std::future::{Future, pending};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rtprof::pprof::{self, LabelSet, label, set_labels};
use rtprof::task::{Instrument, do_with};
use rtprof::{GoroutineKind, GoroutineRecord, goroutine_profile};
use test_support::profile::{Profile, Sample};
use test_support::{child, contention, until};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::by_hand::{Leaf, Woken, poll};
use super::leaves::lasting_runtime;
use super::states::{find, waits};

fn of(name: &str) -> LabelSet {
    pprof::labels(&[("of", name)])
}

/// Returns the value of the label `of` of a goroutine.
fn seen(goroutine: &GoroutineRecord) -> Option<&str> {
    goroutine.labels.iter().find(|(key, _)| key == "of").map(|(_, value)| value.as_str())
}

fn current() -> Option<String> {
    label("of")
}

#[test]
fn a_task_keeps_the_labels_of_what_made_it() {
    child::isolated("a_task_keeps_the_labels_of_what_made_it", || {
        let leaf = Leaf::default();
        let body = async {
            assert_eq!(current().as_deref(), Some("maker"));
            let all = goroutine_profile();
            assert_eq!((all[0].name.as_str(), seen(&all[0])), ("task", Some("maker")));
            let thread = all.iter().find(|thread| thread.name == "main").expect("it is there");
            assert_eq!(seen(thread), None, "the thread that polls has its own");
            let other = all.iter().find(|other| other.name == "made by hand").expect("it is there");
            assert_eq!(seen(other), None);
            let inherits = pending::<()>().instrument_named("inherits");
            assert_eq!(find("inherits").as_ref().and_then(seen), Some("maker"));
            // A guard that lives across an await belongs to the task.
            let _guard = set_labels(of("guard"));
            let all = goroutine_profile();
            let thread = all.iter().find(|thread| thread.name == "main").expect("it is there");
            assert_eq!((seen(&all[0]), seen(thread)), (Some("guard"), None));
            leaf.clone().await;
            drop(inherits);
        };
        let _other = pending::<()>().instrument_named("made by hand");
        let mut task = Box::pin(pprof::do_with(of("maker"), || body.instrument_named("task")));
        let executor = Arc::new(Woken::default());
        for polls in 1..=3 {
            assert!(poll(task.as_mut(), &executor).is_pending());
            assert_eq!(current(), None, "the thread has its own labels again");
            let task = find("task").expect("it is there");
            assert_eq!((task.polls, seen(&task)), (polls, Some("guard")));
        }
        // The task does not get labels that the thread sets meanwhile.
        let _guard = set_labels(of("thread"));
        assert!(poll(task.as_mut(), &executor).is_pending());
        assert_eq!(find("task").as_ref().and_then(seen), Some("guard"));
        assert_eq!(current().as_deref(), Some("thread"));
        let all = goroutine_profile();
        assert_eq!((all[0].kind, seen(&all[0])), (GoroutineKind::Thread, Some("thread")));
        drop(task);
    });
}

#[test]
fn a_panic_in_a_poll_leaves_the_threads_labels() {
    child::isolated("a_panic_in_a_poll_leaves_the_threads_labels", || {
        let _guard = set_labels(of("thread"));
        let executor = Arc::new(Woken::default());
        let panics = || do_with(of("future"), async { assert_eq!(current(), None, "on purpose") });
        let mut task = Box::pin(panics().instrument());
        let mut bare = Box::pin(panics());
        std::panic::set_hook(Box::new(|_| {}));
        let polls = std::panic::AssertUnwindSafe(|| poll(task.as_mut(), &executor));
        assert!(std::panic::catch_unwind(polls).is_err());
        assert_eq!(current().as_deref(), Some("thread"));
        let polls =
            std::panic::AssertUnwindSafe(|| bare.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        assert!(std::panic::catch_unwind(polls).is_err());
        assert_eq!(current().as_deref(), Some("thread"));
    });
}

/// A guard that lives across an await is dropped with its future, on any thread: the labels of that thread do not
/// change.
#[test]
fn a_future_that_is_dropped_leaves_the_threads_labels() {
    child::isolated("a_future_that_is_dropped_leaves_the_threads_labels", || {
        /// A value whose destructor allocates.
        struct Destructs;
        impl Drop for Destructs {
            fn drop(&mut self) {
                assert_eq!(current().as_deref(), Some("guard"), "destructors have the labels of the future");
                drop(allocates(100));
            }
        }
        let holds = || async {
            let _guard = set_labels(of("guard"));
            let _destructs = Destructs;
            pending::<()>().await;
        };
        rtprof::set_mem_profile_rate(1);
        let executor = Arc::new(Woken::default());
        let _thread = set_labels(of("thread"));
        let mut task = Box::pin(pprof::do_with(of("maker"), || holds().instrument()));
        assert!(poll(task.as_mut(), &executor).is_pending());
        drop(task);
        assert_eq!(current().as_deref(), Some("thread"), "after a task");

        let mut future = Box::pin(do_with(of("future"), holds()));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(future);
        assert_eq!(current().as_deref(), Some("thread"), "after a future");

        let within = async {
            let mut future = Box::pin(do_with(of("future"), holds()));
            assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(future);
            assert_eq!(current().as_deref(), Some("thread"), "in a poll, by inheritance");
        };
        assert!(poll(Box::pin(within.instrument()).as_mut(), &executor).is_ready());
        drop(_thread);
        assert_eq!(current(), None);

        rtprof::set_mem_profile_rate(0);
        let heap = Profile::heap();
        let samples = heap.samples_of("allocates");
        assert_eq!(samples.iter().map(|sample| sample.values[0]).sum::<i64>(), 3);
        let of_guard = |sample: &&Sample| sample.labels.get("of").is_some_and(|of| of == "guard");
        assert_eq!(samples.iter().filter(of_guard).count(), samples.len());
        let is_whole = |sample: &&Sample| sample.has("a_future_that_is_dropped");
        assert_eq!(samples.iter().filter(is_whole).count(), samples.len(), "{samples:#?}");
    });
}

/// A stack has the labels of the future that awaits there, even if a task awaits several futures.
#[test]
fn where_a_future_awaits_its_labels_are() {
    child::isolated("where_a_future_awaits_its_labels_are", || {
        let runtime = lasting_runtime();
        let outer = async {
            assert_eq!(current(), None);
            let both = async {
                let labelled = do_with(of("first"), do_with(pprof::labels(&[("b", "2")]), pending::<()>()));
                tokio::select! {
                    biased;
                    () = labelled => {}
                    () = do_with(of("second"), tokio::time::sleep(std::time::Duration::MAX)) => {}
                }
            };
            do_with(pprof::labels(&[("a", "1")]), both).await;
        };
        runtime.spawn(outer.instrument_named("outer"));
        until("it waits", || waits("outer") && find("outer").is_some_and(|task| task.stack().len() > 1));
        let task = find("outer").expect("it is there");
        let expected = [("a", "1"), ("of", "second")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(task.labels, expected);
        let mut text = Vec::new();
        pprof::lookup("goroutine").expect("built in").write_to(&mut text, 2).expect("a Vec takes all");
        let text = String::from_utf8(text).expect("a text");
        assert!(text.contains("a: 1, of: second"), "{text}");
    });
}

#[inline(never)]
fn allocates(bytes: usize) -> Vec<u8> {
    let memory = black_box(vec![1; bytes]);
    black_box("allocates");
    memory
}

/// Returns the sum of the samples that contain `function` in a profile, for each value of the label.
fn sums(profile: &Profile, function: &str, value: usize) -> [i64; 3] {
    [Some("a"), Some("b"), None].map(|label| {
        let samples = profile.samples_of(function).into_iter();
        let labelled = samples.filter(|sample| sample.labels.get("of").map(String::as_str) == label);
        labelled.map(|sample| sample.values[value]).sum()
    })
}

/// Two tasks and a future outside a task that run in turns on the threads of a runtime: the allocations of each have
/// its labels.
#[test]
fn the_heap_has_the_labels_of_tasks() {
    child::isolated("the_heap_has_the_labels_of_tasks", || {
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        rtprof::set_mem_profile_rate(1);
        let works = |objects: usize| async move {
            let mut held = Vec::with_capacity(objects);
            for _ in 0..objects {
                held.push(allocates(100));
                yield_now().await;
            }
            held
        };
        let a = runtime.spawn(pprof::do_with(of("a"), || works(100).instrument()));
        let b = runtime.spawn(do_with(of("b"), async move { works(200).instrument().await }));
        let none = runtime.spawn(works(300));
        let held = runtime.block_on(async { (a.await, b.await, none.await) });
        rtprof::set_mem_profile_rate(0);
        let heap = Profile::heap();
        assert_eq!(sums(&heap, "allocates", 2), [100, 200, 300]);
        for sample in heap.samples_of("allocates") {
            let has_executor =
                sample.frames.iter().any(|frame| frame.function.starts_with("tokio::runtime::"));
            assert_eq!(has_executor, !sample.labels.contains_key("of"), "stacks end at the task: {sample:?}");
        }
        drop(held);
    });
}

#[inline(never)]
fn locks(lock: &rtprof::sync::Mutex<()>) -> rtprof::sync::MutexGuard<'_, ()> {
    let guard = lock.lock();
    black_box("locks");
    guard
}

#[inline(never)]
fn unlocks(guard: rtprof::sync::MutexGuard<'_, ()>) {
    drop(guard);
    black_box("unlocks");
}

/// A lock that is held across an await: the waiter's and the holder's labels.
#[test]
fn locks_have_the_labels_of_tasks() {
    child::isolated("locks_have_the_labels_of_tasks", || {
        contention::record_everything();
        rtprof::set_block_profile_kinds(rtprof::BlockKinds::SYNC);
        let lock = rtprof::sync::Mutex::new(());
        #[allow(clippy::await_holding_lock, reason = "that is what is tested")]
        let holds = async {
            let guard = locks(&lock);
            let mut polled = false;
            let once = std::future::poll_fn(|_| match std::mem::replace(&mut polled, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            do_with(of("elsewhere"), once).await;
            unlocks(guard);
        };
        let executor = Arc::new(Woken::default());
        let mut holds = Box::pin(do_with(of("a"), async { holds.instrument().await }).instrument());
        assert!(poll(holds.as_mut(), &executor).is_pending());
        std::thread::scope(|scope| {
            let waiter = contention::queue(scope, || {
                let mut waits =
                    Box::pin(pprof::do_with(of("b"), || async { unlocks(locks(&lock)) }.instrument()));
                assert!(poll(waits.as_mut(), &executor).is_ready());
            });
            assert!(poll(holds.as_mut(), &executor).is_ready());
            drop(waiter);
        });
        assert_eq!(sums(&contention::written("block"), "locks", 0), [0, 1, 0]);
        assert_eq!(sums(&contention::written("mutex"), "unlocks", 0), [1, 0, 0]);
    });
}

/// Labels of any size.
#[test]
fn long_labels() {
    child::isolated("long_labels", || {
        let (key, value) = ("k".repeat(1 << 16), "v".repeat(1 << 20));
        let long = pprof::labels(&[(&key, &value), ("", "")]);
        let mut task = Box::pin(pprof::do_with(long, || pending::<()>().instrument_named("long")));
        assert!(poll(task.as_mut(), &Arc::default()).is_pending());
        let task = find("long").expect("it is there");
        assert_eq!(task.labels, [(String::new(), String::new()), (key.clone(), value.clone())]);
        // Beyond the limit of distinct sets a task has the overflow set.
        for n in 0..rtprof_runtime::labels::MAX_SETS {
            let mut future = pin!(do_with(of(&n.to_string()), async { current() }));
            let value = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => value,
                Poll::Pending => unreachable!("it is ready at once"),
            };
            assert_eq!(value, Some(n.to_string()), "readers have them in full");
        }
        let task = pprof::do_with(of("one too many"), || pending::<()>().instrument_named("over"));
        assert_eq!(find("over").expect("it is there").labels, [("labels".into(), "overflow".into())]);
        drop(task);
    });
}
