//! Waits of tasks in the block profile.

use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use rtprof::pprof;
use rtprof::task::{AwaitStacks, Instrument, Instrumented, do_with, set_await_stacks};
use rtprof::{BlockKinds, set_block_profile_kinds, set_block_profile_rate};
use test_support::child;
use test_support::contention::{About, Moment, NONE, Seen, Waits, most_raised, raised_to, record_everything};
use tokio::runtime::Builder;

use super::by_hand::{Leaf, Woken, poll};
use super::states::find;

/// How long a task waits in these tests; longer than the calls around the wait take.
const WAIT: Duration = Duration::from_millis(20);

/// Lets time pass.
fn pass() {
    let start = Instant::now();
    while start.elapsed() < WAIT {
        yield_now();
    }
}

async fn first(leaf: Leaf) {
    leaf.await;
}

async fn second(leaf: Leaf) {
    leaf.await;
}

/// The first wait ends at the second poll, and so on; the last wait has not ended.
#[test]
fn each_wait_is_an_event_at_the_place_that_awaits() {
    child::isolated("each_wait_is_an_event_at_the_place_that_awaits", || {
        record_everything();
        let executor = Arc::new(Woken::default());
        let (polls, leaf, last) = (AtomicUsize::new(0), Leaf::default(), Leaf::default());
        let awaits = async {
            let (mut waits_first, mut waits_second) = (Box::pin(first(leaf.clone())), Box::pin(second(last)));
            std::future::poll_fn(|context| match polls.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => waits_first.as_mut().poll(context),
                _ => waits_second.as_mut().poll(context),
            })
            .await;
        };
        let label = pprof::labels(&[("where", "first")]);
        let mut task = Box::pin(do_with(label, awaits).instrument_named("waits"));
        let mut expected = About::default();
        for _ in 0..2 {
            let began = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
            pass();
            // A second wake does not matter, nor does the time of the poll.
            let woken = Moment::of(|| leaf.take().pop().expect("it was kept").wake());
            let wait = woken.since(began);
            // Long enough to be noticed if it were counted.
            std::thread::sleep(WAIT + (wait.most - wait.least) * 2);
            expected = expected + wait;
        }
        assert!(poll(task.as_mut(), &executor).is_pending());
        let seen = Seen::now();
        let waits = seen.blocked("first");
        assert_eq!(waits.count, 2);
        // The time until the poll is not part of the wait.
        expected.check("both waits", waits.nanos);
        for sample in seen.samples_blocked("first") {
            assert_eq!(sample.labels.get("where").map(String::as_str), Some("first"));
            let functions: Vec<_> = sample.frames.iter().map(|frame| frame.function.as_str()).collect();
            assert!(functions[0].contains("Leaf"), "{functions:?}");
            assert!(functions.last().expect("a function").contains("{closure"), "{functions:?}");
            assert!(functions.iter().all(|function| !function.contains("rtprof_")), "{functions:?}");
        }
        assert_eq!(seen.blocked("second"), NONE);
        let began = Moment::now();
        pass();
        let ended = Moment::of(|| drop(task));
        let waits = Seen::now().blocked("second");
        assert_eq!(waits.count, 1, "it was dropped while it waited");
        assert!(waits.nanos >= ended.since(began).least.as_nanos() as i64, "{waits:?}");
    });
}

/// A task that wakes itself, or is polled for its stack, has not ended a wait.
#[test]
fn what_is_no_wait_is_no_event() {
    child::isolated("what_is_no_wait_is_no_event", || {
        record_everything();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let mut polls = 0;
        let yields = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            let cloned = context.waker().clone();
            cloned.wake();
            polls += 1;
            if polls == 10 { Poll::Ready(()) } else { Poll::Pending }
        });
        runtime.block_on(yields.instrument());
        let executor = Arc::new(Woken::default());
        let mut never_polled = Box::pin(first(Leaf::default()).instrument());
        never_polled.set(first(Leaf::default()).instrument());
        drop(never_polled);
        assert_eq!(Seen::now().blocked(""), NONE);

        set_await_stacks(AwaitStacks::Never);
        set_block_profile_kinds(BlockKinds::ALL);
        set_block_profile_kinds(BlockKinds::DEFAULT & BlockKinds::SYNC);
        let leaf = Leaf::default();
        let mut task = Box::pin(first(leaf.clone()).instrument_named("asked"));
        for _ in 0..3 {
            assert!(poll(task.as_mut(), &executor).is_pending());
            assert_eq!(find("asked").expect("it is there").stack().len(), 1, "nothing is noted");
        }
        assert_eq!(Seen::now().blocked(""), NONE, "the profile has no waits of tasks");

        // The task's last poll was before stacks were captured, so a snapshot requests its stack.
        set_block_profile_kinds(BlockKinds::AWAIT);
        set_await_stacks(AwaitStacks::OnRequest);
        let woken = executor.count();
        assert!(find("asked").is_some());
        assert_eq!(executor.count(), woken + 1);
        assert!(poll(task.as_mut(), &executor).is_pending());
        assert_eq!(Seen::now().blocked(""), NONE, "it has waited all the time");
        leaf.take().pop().expect("it was kept").wake();
        assert!(poll(task.as_mut(), &executor).is_pending());
        assert_eq!(Seen::now().blocked("first").count, 1);
    });
}

/// A task that a parent polls for other reasons waits all the time, first in one place, then in another.
#[test]
fn a_poll_without_a_wake_ends_no_wait() {
    child::isolated("a_poll_without_a_wake_ends_no_wait", || {
        record_everything();
        let executor = Arc::new(Woken::default());
        let (moves_on, leaf) = (Cell::new(false), Leaf::default());
        let (here, there) = (Box::pin(first(leaf.clone())), Box::pin(second(leaf.clone())));
        let (mut here, mut there) = (here, there);
        let awaits = std::future::poll_fn(|context| match moves_on.get() {
            false => here.as_mut().poll(context),
            true => there.as_mut().poll(context),
        });
        let mut task = Box::pin(awaits.instrument_named("waits"));
        let began = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
        pass();
        for _ in 0..10 {
            assert!(poll(task.as_mut(), &executor).is_pending());
        }
        let waited = find("waits").expect("it is there").waited;
        assert!(waited >= WAIT / 2, "since the first poll: {waited:?}");
        assert_eq!(Seen::now().blocked(""), NONE);
        moves_on.set(true);
        let moved = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
        let seen = Seen::now();
        assert_eq!((seen.blocked("first").count, seen.blocked("second").count), (1, 0));
        moved.since(began).check("the first wait", seen.blocked("first").nanos);
        assert!(poll(task.as_mut(), &executor).is_pending());
        drop(task);
        assert_eq!(Seen::now().blocked("second").count, 1);
    });
}

/// An executor that polls its tasks over and over, without a waker.
#[test]
fn each_poll_ends_a_wait_that_nothing_could_wake() {
    child::isolated("each_poll_ends_a_wait_that_nothing_could_wake", || {
        rtprof::set_block_profile_rate(1);
        let executor = Arc::new(Woken::default());
        let mut polls = 0;
        let looks = std::future::poll_fn(|_| {
            polls += 1;
            if polls == 5 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut task = Box::pin(looks.instrument_named("looks"));
        assert!(poll(task.as_mut(), &executor).is_pending());
        pass();
        let waited = find("looks").expect("it is there").waited;
        assert!(waited >= WAIT / 2, "{waited:?}");
        let again = Instant::now();
        assert!(poll(task.as_mut(), &executor).is_pending());
        assert!(find("looks").expect("it is there").waited <= again.elapsed(), "since the last poll");
        while poll(task.as_mut(), &executor).is_pending() {}
        let records = rtprof::block_profile();
        assert_eq!(records.iter().map(|record| record.count).sum::<i64>(), 4, "{records:?}");
    });
}

/// A poll for the task's stack that finds the task ready ends its wait.
#[test]
fn a_wait_that_is_found_to_be_over() {
    child::isolated("a_wait_that_is_found_to_be_over", || {
        record_everything();
        let executor = Arc::new(Woken::default());
        let (is_over, leaf) = (Cell::new(false), Leaf::default());
        let mut waits = Box::pin(first(leaf));
        let ends = std::future::poll_fn(|context| match is_over.get() {
            false => waits.as_mut().poll(context),
            true => Poll::Ready(()),
        });
        let mut task = Box::pin(ends.instrument());
        let began = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
        pass();
        is_over.set(true);
        let ended = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_ready()));
        let waits = Seen::now().blocked("first");
        assert_eq!(waits.count, 1);
        ended.since(began).check("the wait", waits.nanos);
    });
}

/// Neither a panic nor the work of destructors is a wait.
#[test]
fn the_end_of_a_task_is_no_wait() {
    child::isolated("the_end_of_a_task_is_no_wait", || {
        struct Destructs<'a>(&'a Cell<Option<Moment>>);
        impl Drop for Destructs<'_> {
            fn drop(&mut self) {
                self.0.set(Some(Moment::now()));
                pass();
            }
        }
        record_everything();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let executor = Arc::new(Woken::default());
        let mut panics = Box::pin(async { panic!("on purpose") }.instrument());
        let polls = std::panic::AssertUnwindSafe(|| poll(panics.as_mut(), &executor));
        assert!(std::panic::catch_unwind(polls).is_err());
        std::panic::set_hook(hook);
        drop(panics);
        assert_eq!(Seen::now().blocked(""), NONE);

        let (leaf, ended) = (Leaf::default(), Cell::new(None));
        let destructs = Destructs(&ended);
        let waits = async {
            let _destructs = destructs;
            first(leaf.clone()).await;
        };
        let mut task = Box::pin(waits.instrument());
        let began = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
        let least = Moment::now().since(began).least;
        drop(task);
        let waits = Seen::now().blocked("first");
        assert_eq!(waits.count, 1);
        let most = ended.get().expect("it was dropped").since(began).most;
        About { least, most }.check("the wait", waits.nanos);
    });
}

/// Waits that end before their stack was captured are events too.
#[test]
fn a_wait_without_a_stack() {
    child::isolated("a_wait_without_a_stack", || {
        let (leaf, executor) = (Leaf::default(), Arc::new(Woken::default()));
        let mut task = Box::pin(first(leaf.clone()).instrument());
        assert!(poll(task.as_mut(), &executor).is_pending());
        set_block_profile_rate(1);
        leaf.take().pop().expect("it was kept").wake();
        assert!(poll(task.as_mut(), &executor).is_pending());
        set_block_profile_rate(0);
        leaf.take().pop().expect("it was kept").wake();
        assert!(poll(task.as_mut(), &executor).is_pending());
        let records = rtprof::block_profile();
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!((records[0].count, records[0].stack().len()), (1, 1));
    });
}

#[inline(never)]
async fn receives(messages: &mut tokio::sync::mpsc::Receiver<()>) -> Option<()> {
    let message = messages.recv().await;
    black_box(message)
}

/// The profile agrees with a script of waits, on a runtime with two workers, through a channel.
#[test]
fn a_script_of_waits() {
    child::isolated("a_script_of_waits", || {
        const MESSAGES: i64 = 20;
        record_everything();
        set_block_profile_kinds(BlockKinds::AWAIT);
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let (send, mut messages) = tokio::sync::mpsc::channel(1);
        let receiver = async move {
            let mut most = Duration::ZERO;
            let mut start = Instant::now();
            while receives(&mut messages).await.is_some() {
                most += start.elapsed();
                start = Instant::now();
            }
            most + start.elapsed()
        };
        let receiver = runtime.spawn(receiver.instrument_named("receiver"));
        let least = Duration::from_millis(2);
        for message in 0..MESSAGES {
            test_support::until("it waits", || {
                find("receiver")
                    .is_some_and(|task| task.wait_reason().is_some() && task.polls as i64 > message)
            });
            std::thread::sleep(least);
            send.blocking_send(()).expect("it is received");
        }
        drop(send);
        let most = runtime.block_on(receiver).expect("it ends");
        let Waits { count, nanos } = Seen::now().blocked("receives");
        // The task may have been about to wait for the end when the channel was closed.
        assert!((MESSAGES..=MESSAGES + 1).contains(&count), "{count}");
        About { least: least * MESSAGES as u32, most }.check("all waits", nanos);
    });
}

/// The block profile under a budget of which a wait of a task uses up a multiple.
const GOVERNED_NANOS: u64 = 10_000;

fn govern() {
    set_block_profile_kinds(BlockKinds::AWAIT);
    set_block_profile_rate(GOVERNED_NANOS);
    rtprof::set_profile_budget(0.25).expect("it is a budget");
}

/// The waits of a task whose leaf is woken again and again.
#[derive(Default)]
struct Played {
    count: usize,
    all: About,
    /// The sum of the squares of their nanoseconds.
    squares: f64,
    /// The nanoseconds of the longest one.
    longest: f64,
    /// How often the leaf has cloned its waker.
    clones: usize,
}

impl Played {
    fn of<F: Future>(mut task: Pin<&mut Instrumented<F>>, leaf: &Leaf) -> Self {
        // Longer than the rate, so that without a budget each is recorded.
        let length = 2 * Duration::from_nanos(GOVERNED_NANOS);
        let executor = Arc::new(Woken::default());
        let mut played = Self { count: 20_000, ..Self::default() };
        for _ in 0..played.count {
            let began = Moment::of(|| assert!(poll(task.as_mut(), &executor).is_pending()));
            let mut wakers = leaf.0.lock().expect("nobody panics");
            let earlier = wakers.len() - 1;
            wakers.drain(..earlier);
            played.clones += earlier;
            let start = Instant::now();
            while start.elapsed() < length {
                spin_loop();
            }
            let wait = Moment::of(|| wakers[0].wake_by_ref()).since(began);
            played.all = played.all + wait;
            let nanos = wait.most.as_nanos() as f64;
            played.squares += nanos.powi(2);
            played.longest = played.longest.max(nanos);
        }
        assert!(poll(task, &executor).is_pending());
        played
    }

    /// Compares with what was recorded of it.
    fn check(&self, recorded: Waits) {
        let weight = most_raised("block") / GOVERNED_NANOS as f64;
        assert!(weight > 2.0, "the budget has raised the rate to {weight} times");
        // A wait of x nanoseconds that is recorded with the weight w, or not, has the variance x²(w - 1) and counts at
        // most wx. By Bernstein's inequality a sum of such waits is off by more than √(2vt) + bt/3 with a probability
        // of at most 2e⁻ᵗ, where v is the sum of the variances and b the most that one wait counts. Here t is 18. The second
        // term matters when the thread was descheduled during one wait: that wait outweighs all others.
        let scatter = |squares: f64, longest: f64| 6.0 * ((weight * squares).sqrt() + weight * longest);
        let off = (recorded.count as f64 - self.count as f64).abs();
        let most = scatter(self.count as f64, 1.0);
        assert!(off < most, "{} waits of {}, which may differ by {most}", recorded.count, self.count);
        let scatter = Duration::from_nanos(scatter(self.squares, self.longest) as u64);
        let About { least, most } = self.all;
        About { least: least.saturating_sub(scatter), most: most + scatter }
            .check("all waits", recorded.nanos);
    }
}

/// Under a budget a task notes its stack for some of its waits, which stand for the others. The leaf keeps its waker in the
/// other polls.
#[test]
fn a_budget_leaves_out_waits_and_keeps_totals() {
    child::isolated("a_budget_leaves_out_waits_and_keeps_totals", || {
        govern();
        let leaf = Leaf::default();
        let task = pin!(first(leaf.clone()).instrument());
        let played = Played::of(task, &leaf);
        assert!(played.clones < played.count / 2, "{} clones", played.clones);
        let seen = Seen::now();
        assert_eq!(seen.blocked("first").count, seen.blocked("").count, "each stack is known");
        played.check(seen.blocked("first"));
    });
}

/// Both wait, and each decides for itself whether it notes where.
#[test]
fn a_task_inside_another_one_under_a_budget() {
    async fn around(leaf: Leaf) {
        first(leaf).instrument().await;
    }
    child::isolated("a_task_inside_another_one_under_a_budget", || {
        govern();
        let leaf = Leaf::default();
        let task = pin!(around(leaf.clone()).instrument());
        let played = Played::of(task, &leaf);
        let seen = Seen::now();
        let (inner, outer) = (seen.blocked("first"), seen.blocked("around"));
        assert_eq!(inner.count + outer.count, seen.blocked("").count, "each stack is known");
        played.check(inner);
        played.check(outer);
    });
}

/// While tasks note all stacks for another reason, nothing is left out, and what that costs raises no rate.
#[test]
fn stacks_that_are_noted_in_any_case_are_not_charged_to_the_budget() {
    child::isolated("stacks_that_are_noted_in_any_case_are_not_charged_to_the_budget", || {
        govern();
        // The rate is to be raised, and far from the greatest that it can be, in both builds.
        rtprof::set_profile_budget(if cfg!(debug_assertions) { 1.0 } else { 0.25 }).expect("it is a budget");
        let leaf = Leaf::default();
        let mut task = pin!(first(leaf.clone()).instrument());
        Played::of(task.as_mut(), &leaf);
        let rate = || raised_to("block").unwrap_or(GOVERNED_NANOS as f64);
        let before = rate();
        set_await_stacks(AwaitStacks::Always);
        let played = Played::of(task, &leaf);
        assert!(played.clones >= played.count - 1, "{} clones", played.clones);
        let after = rate();
        assert!(after < 4.0 * before, "{before} ns, then {after} ns");
    });
}
