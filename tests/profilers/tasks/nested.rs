//! Tasks that are polled inside the polls of others.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use rtprof::task::{AwaitStacks, Instrument, set_await_stacks};
use test_support::{child, until};

use super::by_hand::{Leaf, Woken, poll};
use super::dump;
use super::leaves::lasting_runtime;
use super::states::{find, waits};

#[test]
fn nested_in_itself_and_in_another_executor() {
    child::isolated("nested_in_itself_and_in_another_executor", || {
        let runtime = lasting_runtime();
        let twice = pending::<()>().instrument_named("inner").instrument_named("outer");
        runtime.spawn(twice);
        until("both wait", || waits("inner") && waits("outer"));
        let all = dump::tasks();
        assert!(all["inner"].frames[0].function.contains("task_has_no_waker"), "{all:#?}");

        // A thread that polls a task runs another executor to its end.
        let (send, wait) = tokio::sync::oneshot::channel::<()>();
        let blocks_on = async {
            let other = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            std::thread::spawn(move || other.block_on(wait.instrument_named("within")))
                .join()
                .expect("it ends")
                .ok();
        };
        runtime.spawn(blocks_on.instrument_named("around"));
        until("it waits", || waits("within"));
        assert!(find("around").is_some_and(|task| task.thread_id != 0), "its thread is still in its poll");
        send.send(()).expect("it waits");
        until("both end", || find("within").is_none() && find("around").is_none());
    });
}

/// A bare executor, on the stack of a task that another executor polls.
#[test]
fn a_bare_block_on_inside_a_poll() {
    fn block_on<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return result;
            }
            std::thread::park();
        }
    }
    child::isolated("a_bare_block_on_inside_a_poll", || {
        let (send, wait) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(|| {
            let inner = async { wait.await.ok() }.instrument_named("inner");
            block_on(async { block_on(inner) }.instrument_named("outer"))
        });
        until("the inner one waits", || waits("inner"));
        let all = dump::tasks();
        let function = "a_bare_block_on_inside_a_poll";
        assert_eq!(all["inner"].lines_in(function, "nested.rs").len(), 1, "{all:#?}");
        assert!(all["outer"].about.contains("on thread"), "{all:#?}");
        assert!(!all["outer"].lines_in("block_on", "nested.rs").is_empty(), "{all:#?}");
        send.send(()).expect("it waits");
        thread.join().expect("it ends");
        assert!(find("inner").is_none() && find("outer").is_none());
    });
}

/// A leaf inside an instrumented future inside another one: both tasks have a stack after every poll.
#[test]
fn instrumented_within_an_instrumented_one() {
    child::isolated("instrumented_within_an_instrumented_one", || {
        set_await_stacks(AwaitStacks::Always);
        let (executor, leaf) = (Arc::new(Woken::default()), Leaf::default());
        let inside = leaf.clone();
        let outer = async move {
            let inner = async {
                inside.await;
                unreachable!("it waits for ever")
            };
            let () = inner.instrument_named("inner").await;
        };
        let mut outer = Box::pin(outer.instrument_named("outer"));
        for round in 0..5 {
            assert!(poll(outer.as_mut(), &executor).is_pending());
            let all = dump::tasks();
            for name in ["inner", "outer"] {
                let function = "instrumented_within_an_instrumented_one::{{closure}}::{{closure}}";
                assert!(
                    !all[name].lines_in(function, "nested.rs").is_empty(),
                    "{name} in round {round}: {all:#?}"
                );
            }
            // The leaf's last clone leads to the executor.
            let wakers = leaf.take();
            let before = executor.count();
            wakers.last().expect("it was polled").wake_by_ref();
            assert_eq!(executor.count(), before + 1);
            if round % 2 == 0 {
                leaf.0.lock().expect("nobody panics").extend(wakers);
            }
        }
    });
}

async fn looks_first(leaf: Pin<&mut Leaf>) {
    let mut leaf = Some(leaf);
    poll_fn(|context| {
        let leaf = leaf.take().expect("it is polled once");
        assert!(leaf.poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn then_awaits(leaf: Pin<&mut Leaf>) {
    leaf.await;
}

/// Awaits a future with its own clone of the waker.
async fn hands_a_clone_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let waker = context.waker().clone();
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// A leaf keeps its waker as long as it would wake the same task: the leaf is found in each poll, where it is polled
/// last.
#[test]
fn a_leaf_is_seen_where_it_is_polled_last() {
    child::isolated("a_leaf_is_seen_where_it_is_polled_last", || {
        set_await_stacks(AwaitStacks::Always);
        let executor = Arc::new(Woken::default());
        let twice = async {
            let mut leaf = pin!(Leaf::default());
            looks_first(leaf.as_mut()).await;
            then_awaits(leaf.as_mut()).await;
        };
        let mut twice = Box::pin(twice.instrument_named("twice"));
        let mut handed = Box::pin(hands_a_clone_on(Leaf::default()).instrument_named("handed"));
        for _ in 0..4 {
            assert!(poll(twice.as_mut(), &executor).is_pending());
            assert!(poll(handed.as_mut(), &executor).is_pending());
            let tasks = dump::tasks();
            let functions = |name: &str| -> Vec<_> {
                tasks[name].frames.iter().map(|frame| frame.function.clone()).collect()
            };
            let (twice, handed) = (functions("twice"), functions("handed"));
            assert!(twice.iter().any(|function| function.contains("then_awaits")), "{twice:?}");
            assert!(handed[0].contains("Leaf"), "{handed:?}");
        }
    });
}
