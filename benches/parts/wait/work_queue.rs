//! A work queue: producer threads put jobs in, and worker threads take them out and do them.
//!
//! The queue is a ring behind a mutex with two conditions, as in textbooks, over three families of locks; and, as the
//! alternative, a channel of crossbeam.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rtprof_benches::team::{Placement, Team};
use rtprof_benches::work::steps;

use crate::Done;

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// The numbers of threads that put jobs in, and of threads that do them.
    pub(crate) producers: usize,
    pub(crate) workers: usize,
    /// Whether each change is notified to all waiting threads, and not only to one.
    pub(crate) tells_all: bool,
    /// The total number of jobs.
    pub(crate) jobs: usize,
}

/// The number of jobs that the queue has room for.
const BOUND: usize = 64;
/// Steps of a job, which take about a microsecond.
const STEPS: usize = 1_000;

pub(crate) fn of(whose: &str) -> fn(&Team, Load) -> Done {
    match whose {
        "rtprof" => measure::<Ring<Ours>>,
        "parking_lot" => measure::<Ring<ParkingLot>>,
        "std" => measure::<Ring<Std>>,
        "crossbeam-channel" => measure::<Channel>,
        other => panic!("unknown queue {other}"),
    }
}

/// A job; `None` if there are no more.
type Job = Option<u64>;

trait Queue: Send + Sync + 'static {
    fn new(tells_all: bool) -> Self;
    fn put(&self, job: Job);
    fn take(&self) -> Job;
}

/// A mutex and a condition that belong together.
trait Family: Send + Sync + 'static {
    type Mutex: Default + Send + Sync;
    type Condvar: Default + Send + Sync;
    /// Waits until `ready` returns a result.
    fn wait<R>(
        mutex: &Self::Mutex,
        changed: &Self::Condvar,
        ready: impl FnMut(&mut VecDeque<Job>) -> Option<R>,
    ) -> R;
    fn notify_one(changed: &Self::Condvar);
    fn notify_all(changed: &Self::Condvar);
}

macro_rules! family {
    ($name:ident, $mutex:ty, $condvar:ty) => {
        struct $name;

        impl Family for $name {
            type Mutex = $mutex;
            type Condvar = $condvar;

            fn wait<R>(
                mutex: &Self::Mutex,
                changed: &Self::Condvar,
                mut ready: impl FnMut(&mut VecDeque<Job>) -> Option<R>,
            ) -> R {
                let mut jobs = mutex.lock();
                loop {
                    if let Some(result) = ready(&mut jobs) {
                        return result;
                    }
                    changed.wait(&mut jobs);
                }
            }

            fn notify_one(changed: &Self::Condvar) {
                changed.notify_one();
            }

            fn notify_all(changed: &Self::Condvar) {
                changed.notify_all();
            }
        }
    };
}

family!(Ours, rtprof::sync::Mutex<VecDeque<Job>>, rtprof::sync::Condvar);
family!(ParkingLot, parking_lot::Mutex<VecDeque<Job>>, parking_lot::Condvar);

struct Std;

impl Family for Std {
    type Mutex = std::sync::Mutex<VecDeque<Job>>;
    type Condvar = std::sync::Condvar;

    fn wait<R>(
        mutex: &Self::Mutex,
        changed: &Self::Condvar,
        mut ready: impl FnMut(&mut VecDeque<Job>) -> Option<R>,
    ) -> R {
        let mut jobs = mutex.lock().expect("nobody panics");
        loop {
            if let Some(result) = ready(&mut jobs) {
                return result;
            }
            jobs = changed.wait(jobs).expect("nobody panics");
        }
    }

    fn notify_one(changed: &Self::Condvar) {
        changed.notify_one();
    }

    fn notify_all(changed: &Self::Condvar) {
        changed.notify_all();
    }
}

struct Ring<F: Family> {
    jobs: F::Mutex,
    filled: F::Condvar,
    emptied: F::Condvar,
    tells_all: bool,
}

impl<F: Family> Ring<F> {
    fn tell(&self, changed: &F::Condvar) {
        if self.tells_all { F::notify_all(changed) } else { F::notify_one(changed) }
    }
}

impl<F: Family> Queue for Ring<F> {
    fn new(tells_all: bool) -> Self {
        Self { jobs: Default::default(), filled: Default::default(), emptied: Default::default(), tells_all }
    }

    fn put(&self, job: Job) {
        F::wait(&self.jobs, &self.emptied, |jobs| (jobs.len() < BOUND).then(|| jobs.push_back(job)));
        self.tell(&self.filled);
    }

    fn take(&self) -> Job {
        let job = F::wait(&self.jobs, &self.filled, VecDeque::pop_front);
        self.tell(&self.emptied);
        job
    }
}

struct Channel {
    send: crossbeam_channel::Sender<Job>,
    receive: crossbeam_channel::Receiver<Job>,
}

impl Queue for Channel {
    fn new(_: bool) -> Self {
        let (send, receive) = crossbeam_channel::bounded(BOUND);
        Self { send, receive }
    }

    fn put(&self, job: Job) {
        self.send.send(job).expect("the receiver is here");
    }

    fn take(&self) -> Job {
        self.receive.recv().expect("the sender is here")
    }
}

/// Measures from the first member's start until the last one has ended.
fn measure<Q: Queue>(team: &Team, load: Load) -> Done {
    let Load { producers, workers, tells_all, jobs } = load;
    let queue = Q::new(tells_all);
    let open = Arc::new(AtomicU64::new(producers as u64));
    let each = jobs / producers;
    let start = Instant::now();
    team.run(producers + workers, Placement::Anywhere, move |me| {
        if me >= producers {
            let mut value = me as u64;
            while let Some(job) = queue.take() {
                value = steps(value ^ job, STEPS);
            }
            black_box(value);
            return;
        }
        (0..each).for_each(|job| queue.put(Some(job as u64)));
        // The last producer ends the workers.
        if open.fetch_sub(1, Ordering::AcqRel) == 1 {
            (0..workers).for_each(|_| queue.put(None));
        }
    });
    let operations = (each * producers) as f64;
    Done { nanos: start.elapsed().as_nanos() as f64 / operations, operations }
}
