//! Work of async tasks on tokio's runtimes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hint::black_box;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;

use crate::processor::{Clocks, used_by_all};
use crate::serve::serve;

/// How tasks are spawned.
pub trait Spawn: Copy + Send + Sync + 'static {
    /// Spawns `future` as `tokio::spawn` does.
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;
}

/// Spawns by tokio alone.
#[derive(Clone, Copy)]
pub struct Plain;

impl Spawn for Plain {
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(future)
    }
}

/// Returns the runtime that a request names: `current` has one thread, the calling one, `multi` two workers.
///
/// # Panics
/// When the name is unknown.
pub fn runtime(name: &str) -> Runtime {
    let mut builder = builder(name);
    builder.on_thread_start(count_this_thread);
    builder.build().expect("a runtime")
}

/// Returns a builder of the runtime that a request names. Each thread of the runtime has to call [`count_this_thread`]
/// when it starts; the calling thread has been counted.
///
/// # Panics
/// When the name is unknown.
pub fn builder(name: &str) -> Builder {
    let mut builder = match name {
        "current" => Builder::new_current_thread(),
        "multi" => Builder::new_multi_thread(),
        other => panic!("unknown runtime {other}"),
    };
    // The current thread is the only worker of the first kind.
    count_this_thread();
    builder.worker_threads(2).enable_all();
    builder
}

/// Makes the calling thread one of the workers, whose processor time is measured.
pub fn count_this_thread() {
    WORKERS.add_this_thread();
}

/// Serves a peer of `part-tasks`: `work RUNTIME WORK _ COUNT` answers as there, with zeros for the trace, for tasks that
/// `spawn` spawns on the runtime that `make` makes of the name.
///
/// # Panics
/// On a request it does not know.
pub fn serve_works(make: impl Fn(&str) -> Runtime, spawn: impl Spawn) {
    let mut runtimes = HashMap::new();
    let mut used = used_by_all();
    serve(|request| match request.word() {
        "work" => {
            let name = request.word();
            let runtime = runtimes.entry(name.to_owned()).or_insert_with(|| make(name));
            let (work, _how, count) = (Work::named(request.word()), request.word(), request.number());
            let nanos = work.nanos(runtime, count, spawn);
            // Since the last request, because a peer's threads may work off the events later.
            let before = std::mem::replace(&mut used, used_by_all());
            vec![nanos, nanos_each(used - before, count), 0.0, 0.0, 0.0]
        }
        other => panic!("unknown request {other}"),
    });
}

/// The threads that poll tasks. What other threads do at the same time, such as the encoder of a trace, is not counted.
static WORKERS: Clocks = Clocks::new();

/// Returns the nanoseconds of `used` for one of `count` tasks or polls.
pub fn nanos_each(used: Duration, count: usize) -> f64 {
    used.as_nanos() as f64 / count as f64
}

/// The work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A task is spawned and joined.
    Spawn,
    /// Two tasks send a message back and forth.
    PingPong,
    /// A task wakes itself while it is polled.
    SelfWake,
}

impl Work {
    /// Returns the work that a request names.
    ///
    /// # Panics
    /// When the name is unknown.
    pub fn named(name: &str) -> Self {
        match name {
            "spawn" => Self::Spawn,
            "ping" => Self::PingPong,
            "wake" => Self::SelfWake,
            other => panic!("unknown work {other}"),
        }
    }

    /// Returns the nanoseconds of the workers' processor time for a task, or for a poll, of `count`. The work runs inside a
    /// task of the runtime, which rtprof and hotpath do not follow, while the hooks of other peers see its polls too.
    pub fn nanos(self, runtime: &Runtime, count: usize, spawn: impl Spawn) -> f64 {
        let nanos = match self {
            Self::Spawn => runtime.spawn(spawn_and_join(spawn, count)),
            Self::PingPong => runtime.spawn(ping_pong(spawn, count)),
            Self::SelfWake => runtime.spawn(wakes_itself(spawn, count)),
        };
        runtime.block_on(nanos).expect("it does not panic")
    }
}

async fn spawn_and_join(spawn: impl Spawn, count: usize) -> f64 {
    let before = WORKERS.used();
    for n in 0..count {
        black_box(spawn.spawn(async move { black_box(n) }).await.expect("it does not panic"));
    }
    nanos_each(WORKERS.used() - before, count)
}

async fn ping_pong(spawn: impl Spawn, count: usize) -> f64 {
    let ((there, mut arrives), (back, mut returns)) = (unbounded_channel(), unbounded_channel());
    let before = WORKERS.used();
    let sends = spawn.spawn(async move {
        for n in 0..count / 2 {
            there.send(n).expect("it is received");
            returns.recv().await.expect("it comes back");
        }
    });
    let answers = spawn.spawn(async move {
        while let Some(n) = arrives.recv().await {
            back.send(n).expect("it is received");
        }
    });
    sends.await.expect("it does not panic");
    answers.await.expect("it does not panic");
    nanos_each(WORKERS.used() - before, count)
}

async fn wakes_itself(spawn: impl Spawn, count: usize) -> f64 {
    let before = WORKERS.used();
    let mut left = count;
    let polls = spawn.spawn(poll_fn(move |context| {
        left -= 1;
        if left == 0 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    polls.await.expect("it does not panic");
    nanos_each(WORKERS.used() - before, count)
}
