//! The order of the stacks of a task that has left several in its last poll.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use rtprof::pprof;
use rtprof::task::{AwaitStacks, Instrument, Instrumented, do_with, set_await_stacks};
use test_support::child;

use super::by_hand::{Leaf, Woken, poll};
use super::dump;
use super::states::find;

async fn first(leaf: Leaf) {
    leaf.await;
}

async fn second(leaf: Leaf) {
    leaf.await;
}

/// Awaits both, as `join!` does.
async fn both() {
    let labels = pprof::labels(&[("in", "first")]);
    let mut first = pin!(do_with(labels, first(Leaf::default())));
    let mut second = pin!(second(Leaf::default()));
    poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        Poll::<()>::Pending
    })
    .await;
}

/// Awaits `first` together with a future that is ready at once, as `select!` does, and then `second`.
async fn one_then_the_other(kept: Leaf) {
    let mut first = pin!(first(kept));
    poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    second(Leaf::default()).await;
}

/// A task and its executor.
struct Polled<F>(Pin<Box<Instrumented<F>>>, Arc<Woken>);

impl<F: Future> Polled<F> {
    fn once(name: &str, future: F) -> Self {
        let mut task = Self(Box::pin(future.instrument_named(name)), Arc::default());
        task.again();
        task
    }

    fn again(&mut self) {
        assert!(poll(self.0.as_mut(), &self.1).is_pending());
    }
}

/// Returns whether the task is in the profile under the labels of `first`.
fn is_labelled(name: &str) -> bool {
    find(name).is_some_and(|task| task.labels == [("in".to_owned(), "first".to_owned())])
}

/// Returns which of the two functions is on the first stack shown, and which on the others.
fn shown(name: &str) -> (&'static str, Vec<&'static str>) {
    let task = dump::tasks().remove(name).expect("it is there");
    let which = |frames: &[dump::Frame]| {
        let is_on = |function: &str| frames.iter().any(|frame| frame.function.contains(function));
        match (is_on("branches::first::{"), is_on("branches::second::{")) {
            (true, false) => "first",
            (false, true) => "second",
            both => panic!("{both:?} in {frames:#?}"),
        }
    };
    (which(&task.frames), task.branches.iter().map(|frames| which(frames)).collect())
}

#[test]
fn the_first_of_those_that_are_awaited_at_once() {
    child::isolated("the_first_of_those_that_are_awaited_at_once", || {
        set_await_stacks(AwaitStacks::Always);
        let mut one = Polled::once("one", both());
        assert_eq!(shown("one"), ("second", vec!["first"]), "the first may be over");
        assert!(!is_labelled("one"));
        one.again();
        assert_eq!(shown("one"), ("first", vec!["second"]));
        assert!(is_labelled("one"));
        let _two = Polled::once("two", both());
        assert_eq!(shown("two"), ("first", vec!["second"]), "it waits where the other one does");
        assert!(is_labelled("two"));
    });
}

#[test]
fn the_last_one_where_the_first_is_over() {
    child::isolated("the_last_one_where_the_first_is_over", || {
        set_await_stacks(AwaitStacks::Always);
        let kept = Leaf::default();
        let mut one = Polled::once("one", one_then_the_other(kept.clone()));
        assert_eq!(shown("one"), ("second", vec!["first"]));
        one.again();
        assert_eq!(shown("one"), ("second", vec![]));
        let _two = Polled::once("two", one_then_the_other(kept));
        assert_eq!(shown("two"), ("second", vec!["first"]));
    });
}
