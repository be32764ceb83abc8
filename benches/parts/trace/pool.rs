//! A pool of workers: jobs through one bounded channel, results through another.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rtprof::sync::Mutex;
use rtprof::sync::mpsc::sync_channel;
use rtprof::thread;
use rtprof_benches::work::{steps, steps_in};

const WORKERS: usize = 4;
/// The maximum number of jobs, and of results, that wait.
const BOUND: usize = 64;

/// Runs jobs of so many nanoseconds for as long as `window`. Returns the nanoseconds for a job, in wall-clock time over
/// all workers, and the number of jobs.
pub(crate) fn run(nanos: usize, window: Duration) -> (f64, u64) {
    let work = steps_of(nanos);
    let (jobs, queue) = sync_channel::<u64>(BOUND);
    let (results, finished) = sync_channel::<u64>(BOUND);
    let queue = Arc::new(Mutex::new(queue));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (queue, results) = (Arc::clone(&queue), results.clone());
            thread::spawn(move || {
                loop {
                    // A separate statement, so that the lock is released before the work begins.
                    let job = queue.lock().recv();
                    let Ok(job) = job else { return };
                    results.send(steps(job, work)).expect("somebody takes the results");
                }
            })
        })
        .collect();
    drop(results);
    let start = Instant::now();
    let producer = thread::spawn(move || {
        let between_looks = (100_000 / nanos).clamp(1, 64) as u64;
        let mut sent = 0;
        while start.elapsed() < window {
            for _ in 0..between_looks {
                jobs.send(sent).expect("the workers take it");
                sent += 1;
            }
        }
        sent
    });
    let count = finished.iter().count() as u64;
    let took = start.elapsed();
    assert_eq!(producer.join().expect("it does not panic"), count, "every job has a result");
    for worker in workers {
        worker.join().expect("it does not panic");
    }
    (took.as_nanos() as f64 / count as f64, count)
}

/// Returns the number of steps of a job; the same for all jobs of a length in this process, so that they can be
/// compared.
fn steps_of(nanos: usize) -> usize {
    static STEPS_IN_A_MILLISECOND: OnceLock<usize> = OnceLock::new();
    (STEPS_IN_A_MILLISECOND.get_or_init(|| steps_in(1_000_000)) * nanos / 1_000_000).max(1)
}
