//! Threads that wait for each other, or yield to each other: nothing but events.

use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rtprof::sync::mpsc::channel;
use rtprof::sync::{Condvar, Mutex};
use rtprof_benches::team::{Placement, Team};

/// A job: runs so many operations at this place, and returns the nanoseconds for each, after a warm-up.
pub(crate) type Job = fn(&Team, Placement, usize) -> f64;

pub(crate) fn of(word: &str) -> Job {
    match word {
        "channel" => through_channels,
        "condvar" => through_condvar,
        "yield" => yields,
        other => panic!("unknown job {other}"),
    }
}

/// Returns the number of turns before the clock starts.
pub(crate) fn warm_up(count: usize) -> usize {
    count / 8
}

/// Runs `turn` after a warm-up, and returns the nanoseconds for a turn.
fn timed(count: usize, mut turn: impl FnMut()) -> f64 {
    for _ in 0..warm_up(count) {
        turn();
    }
    let start = Instant::now();
    for _ in 0..count {
        turn();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The time that the first member of the team measured.
#[derive(Clone, Default)]
struct Result(Arc<AtomicU64>);

impl Result {
    fn keep(&self, me: usize, nanos: f64) {
        if me == 0 {
            self.0.store(nanos.to_bits(), Ordering::Relaxed);
        }
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Sends a message there and one back.
fn through_channels(team: &Team, place: Placement, count: usize) -> f64 {
    let ((ping, pings), (pong, pongs)) = (channel::<usize>(), channel::<usize>());
    // The members learn their numbers only when they run.
    let ends = StdMutex::new([Some((ping, pongs)), Some((pong, pings))]);
    let result = Result::default();
    let kept = result.clone();
    team.run(2, place, move |me| {
        let (to, from) = ends.lock().expect("nobody panics")[me].take().expect("one job each");
        let nanos = timed(count, || {
            if me == 0 {
                to.send(1).expect("the other one receives");
                from.recv().expect("the other one sends");
            } else {
                let message = from.recv().expect("the other one sends");
                to.send(message).expect("the other one receives");
            }
        });
        kept.keep(me, nanos);
    });
    result.get()
}

/// Alternates turns; each thread waits for its turn with a lock and a condition.
fn through_condvar(team: &Team, place: Placement, count: usize) -> f64 {
    let whose = Arc::new((Mutex::new(0), Condvar::new()));
    let result = Result::default();
    let kept = result.clone();
    team.run(2, place, move |me| {
        let (whose, has_changed) = &*whose;
        let nanos = timed(count, || {
            let mut turn = whose.lock();
            while *turn != me {
                has_changed.wait(&mut turn);
            }
            *turn = 1 - me;
            drop(turn);
            has_changed.notify_one();
        });
        kept.keep(me, nanos);
    });
    result.get()
}

/// Yields on one thread, with no other thread to run. Go: `runtime.Gosched`.
fn yields(team: &Team, place: Placement, count: usize) -> f64 {
    let result = Result::default();
    let kept = result.clone();
    team.run(1, place, move |me| kept.keep(me, timed(count, rtprof::thread::yield_now)));
    result.get()
}
