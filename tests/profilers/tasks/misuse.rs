//! Futures and wakers that are used in unusual ways.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use rtprof::task::{AwaitStacks, Instrument, set_await_stacks};
use rtprof::{GoroutineState, num_goroutine};
use test_support::{Background, PATIENCE, child, until};

use super::by_hand::{Leaf, Woken, poll};
use super::dump;
use super::leaves::lasting_runtime;
use super::states::find;

#[test]
fn polled_after_it_was_ready() {
    child::isolated("polled_after_it_was_ready", || {
        let before = num_goroutine();
        let executor = Arc::new(Woken::default());
        let mut future = pin!(async { 7 }.instrument());
        assert_eq!(poll(future.as_mut(), &executor), Poll::Ready(7));
        assert_eq!(num_goroutine(), before, "it has ended");
        let panic = catch_unwind(AssertUnwindSafe(|| poll(future.as_mut(), &executor))).expect_err("as ever");
        assert_eq!(*panic.downcast::<&str>().expect("text"), "`async fn` resumed after completion");
        // A future that may be polled again.
        let mut future = pin!(poll_fn(|_| Poll::Ready(8)).instrument());
        for _ in 0..2 {
            assert_eq!(poll(future.as_mut(), &executor), Poll::Ready(8));
        }
        assert_eq!(num_goroutine(), before);
    });
}

/// A task allocates no memory of the program's allocator, from its beginning to its end.
#[test]
fn nothing_is_allocated() {
    child::isolated("nothing_is_allocated", || {
        rtprof::set_mem_profile_rate(1);
        let executor: std::task::Waker = Arc::new(Woken::default()).into();
        let mut context = Context::from_waker(&executor);
        let allocated =
            || -> i64 { rtprof::mem_profile(true).iter().map(|record| record.alloc_objects).sum() };
        for mode in [AwaitStacks::Never, AwaitStacks::Always] {
            set_await_stacks(mode);
            let mut waker = None;
            let mut rounds = |count: usize| {
                for _ in 0..count {
                    let clones = poll_fn(|context| {
                        waker = Some(context.waker().clone());
                        Poll::<()>::Pending
                    });
                    let mut future = pin!(clones.instrument_named("a name"));
                    assert!(future.as_mut().poll(&mut context).is_pending());
                    assert!(future.as_mut().poll(&mut context).is_pending());
                }
                waker.take().expect("it was polled").wake();
            };
            rounds(1);
            let before = allocated();
            rounds(1000);
            let after = allocated();
            // `mem_profile` itself makes a few dozen allocations.
            assert!(after - before < 500, "{} objects in {mode:?}", after - before);
        }
    });
}

/// The waker leads to the executor that has polled last, and a leaf that compares wakers notices the change.
#[test]
fn moved_between_executors() {
    child::isolated("moved_between_executors", || {
        for mode in [AwaitStacks::Never, AwaitStacks::Always] {
            set_await_stacks(mode);
            let [first, second] = [Arc::new(Woken::default()), Arc::new(Woken::default())];
            let leaf = Leaf::default();
            let mut future = Box::pin(leaf.clone().instrument_named("moved"));
            for _ in 0..2 {
                assert!(poll(future.as_mut(), &first).is_pending());
            }
            let wakers = leaf.take();
            assert_eq!(wakers.len(), if mode == AwaitStacks::Always { 2 } else { 1 });
            wakers.last().expect("one").wake_by_ref();
            assert_eq!((first.count(), second.count()), (1, 0));
            assert_eq!(find("moved").expect("it is there").state, GoroutineState::Runnable);

            assert!(poll(future.as_mut(), &second).is_pending());
            leaf.take().pop().expect("the leaf was asked anew").wake();
            assert_eq!((first.count(), second.count()), (1, 1));
            drop(wakers);
            // No waker leads to the first executor any more.
            assert!(poll(future.as_mut(), &second).is_pending());
            assert_eq!(Arc::strong_count(&first), 1);
            let last = leaf.take();
            last.iter().for_each(Waker::wake_by_ref);
            assert_eq!((first.count(), second.count()), (1, 1 + last.len()));

            drop(future);
            assert!(find("moved").is_none());
            last.into_iter().for_each(Waker::wake);
            assert!(second.count() > 1, "woken after its end, it does no harm");
            assert_eq!(Arc::strong_count(&second), 1, "all wakers are gone");
        }
    });
}

/// A task without wakers releases the executor's waker, so that the executor may free the task.
#[test]
fn the_executor_is_not_kept() {
    child::isolated("the_executor_is_not_kept", || {
        let executor = Arc::new(Woken::default());
        let leaf = Leaf::default();
        let mut future = Box::pin(leaf.clone().instrument_named("kept"));
        assert!(poll(future.as_mut(), &executor).is_pending());
        assert_eq!(Arc::strong_count(&executor), 2);
        drop(leaf.take());
        assert_eq!(Arc::strong_count(&executor), 1);
        let stuck = find("kept").expect("it is there");
        assert!(stuck.wait_reason().is_some(), "{stuck:?}");
        assert!(dump::tasks()["kept"].frames[0].function.contains("task_has_no_waker"));
    });
}

#[test]
fn dropped_by_a_panic_in_a_poll() {
    child::isolated("dropped_by_a_panic_in_a_poll", || {
        let before = num_goroutine();
        let runtime = lasting_runtime();
        let panics = async {
            tokio::task::yield_now().await;
            let _inner = pending::<()>().instrument_named("inner");
            panic!("in a poll");
        };
        let panicked = runtime.block_on(runtime.spawn(panics.instrument_named("panics")));
        assert!(panicked.expect_err("it panics").is_panic());
        until("both have ended", || find("panics").is_none() && find("inner").is_none());
        // The thread is in no poll any more, and its next task is recorded as usual.
        let sees =
            runtime.spawn(async { rtprof::goroutine_profile()[0].name.clone() }.instrument_named("next"));
        assert_eq!(runtime.block_on(sees).expect("it ends"), "next");
        assert!(num_goroutine() >= before);
    });
}

/// Our part of a wake takes no lock and no memory, so that a signal handler may call our waker wherever it may call the
/// executor's.
#[test]
fn woken_by_a_signal_handler() {
    child::isolated("woken_by_a_signal_handler", || {
        static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
        static HANDLED: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn handler(_signal: i32) {
            // The interrupted code may hold the lock.
            if let Ok(Some(waker)) = WAKER.try_lock().as_deref() {
                let clone = waker.clone();
                clone.wake();
                waker.wake_by_ref();
                HANDLED.fetch_add(1, Ordering::Relaxed);
            }
        }
        // SAFETY: the handler has the right type, and only wakes.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
        // SAFETY: the call returns the handle of this thread.
        let thread = unsafe { libc::pthread_self() };
        let executor = Arc::new(Woken::default());
        let leaf = Leaf::default();
        let mut future = Box::pin(leaf.clone().instrument_named("signalled"));
        let mut polls = 0u64;
        let background = Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                // SAFETY: the thread waits for the scope to end.
                background.repeat(|| assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0));
            });
            // Without a sleep, because so many signals would keep a sleep from ending.
            let start = Instant::now();
            while HANDLED.load(Ordering::Relaxed) < 500 {
                assert!(start.elapsed() < PATIENCE, "it was not woken often enough");
                assert!(poll(future.as_mut(), &executor).is_pending());
                polls += 1;
                if let Some(waker) = leaf.take().pop() {
                    *WAKER.lock().expect("nobody panics") = Some(waker);
                }
            }
        });
        let handled = HANDLED.load(Ordering::Relaxed);
        assert_eq!(executor.count(), 2 * handled, "no wake was lost");
        let seen = find("signalled").expect("it is there");
        assert_eq!(u64::from(seen.polls), polls);
        *WAKER.lock().expect("nobody panics") = None;
        drop(future);
        assert_eq!(Arc::strong_count(&executor), 1, "no clone was lost");
    });
}

/// A textbook executor: tasks are kept by their wakers, and by its queue.
mod queue {
    use std::pin::Pin;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake};

    type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

    struct Queued {
        future: Mutex<Option<Boxed>>,
        queue: Sender<Arc<Queued>>,
    }

    impl Wake for Queued {
        fn wake(self: Arc<Self>) {
            self.queue.send(self.clone()).ok();
        }
    }

    pub(super) struct Executor {
        queue: Sender<Arc<Queued>>,
        ready: Receiver<Arc<Queued>>,
    }

    impl Executor {
        pub(super) fn new() -> Self {
            let (queue, ready) = channel();
            Self { queue, ready }
        }

        pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
            let future = Mutex::new(Some(Box::pin(future) as Boxed));
            self.queue.send(Arc::new(Queued { future, queue: self.queue.clone() })).expect("it is there");
        }

        /// Polls the tasks that can run.
        pub(super) fn run(&self) {
            while let Ok(task) = self.ready.try_recv() {
                let waker = task.clone().into();
                let mut future = task.future.lock().expect("nobody panics");
                let polled =
                    future.as_mut().map(|future| future.as_mut().poll(&mut Context::from_waker(&waker)));
                if polled.is_some_and(|polled| polled.is_ready()) {
                    *future = None;
                }
            }
        }
    }
}

/// An executor whose tasks live as long as their wakers drops the futures of all tasks, including one that was woken
/// and will not be polled again.
#[test]
fn tasks_that_their_wakers_keep_are_dropped() {
    child::isolated("tasks_that_their_wakers_keep_are_dropped", || {
        for mode in [AwaitStacks::Never, AwaitStacks::Always] {
            set_await_stacks(mode);
            let before = num_goroutine();
            let executor = queue::Executor::new();
            let (leaf, held) = (Leaf::default(), Arc::new(()));
            for _ in 0..3 {
                let (leaf, held) = (leaf.clone(), held.clone());
                executor.spawn(
                    async move {
                        leaf.await;
                        drop(held);
                    }
                    .instrument(),
                );
            }
            executor.run();
            assert_eq!((Arc::strong_count(&held), num_goroutine()), (4, before + 3));
            let mut wakers = leaf.take();
            assert_eq!(wakers.len(), 3);
            drop(wakers.pop());
            assert_eq!(Arc::strong_count(&held), 3, "no waker is left");
            wakers.pop().expect("two are left").wake();
            drop(executor);
            assert_eq!(Arc::strong_count(&held), 2, "it was thrown away in the queue");
            wakers.pop().expect("one is left").wake();
            assert_eq!(Arc::strong_count(&held), 1, "the executor is gone");
            assert_eq!(num_goroutine(), before);
        }
    });
}

/// An executor's waker that takes a snapshot of all goroutines, or panics.
#[test]
fn a_waker_that_looks_or_panics_when_it_is_asked() {
    struct Looks(AtomicUsize);
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            assert_eq!(DEPTH.fetch_add(1, Ordering::Relaxed), 0, "a look within a look asks no task");
            assert!(!rtprof::goroutine_profile().is_empty());
            DEPTH.fetch_sub(1, Ordering::Relaxed);
            assert!(self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1, "on purpose");
        }
    }
    child::isolated("a_waker_that_looks_or_panics_when_it_is_asked", || {
        let (looks, leaf) = (Arc::new(Looks(AtomicUsize::new(0))), Leaf::default());
        let mut futures = [(); 2].map(|()| Box::pin(leaf.clone().instrument_named("asked")));
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut Context::from_waker(&looks.clone().into())).is_pending());
        }
        assert!(find("asked").is_some());
        assert_eq!(
            looks.0.load(Ordering::Relaxed),
            2,
            "asked once each, and the panic is not that of the look"
        );
        drop(futures);
        let mut wakers = leaf.take();
        assert_eq!(wakers.len(), 2);
        let waker = wakers.pop().expect("it was polled");
        drop(wakers);
        let panic = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        assert!(panic.is_err(), "the executor's panic is that of who wakes");
        assert_eq!(Arc::strong_count(&looks), 1, "no clone was lost");
    });
}
