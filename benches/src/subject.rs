//! The requests that every allocator under test answers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::churn::{Shape, churn};
use crate::live_heap;
use crate::serve::{Request, serve};
use crate::sizes::Sizes;

/// Access to the profiler of a subject.
pub struct Controls {
    /// Sets the mean distance of samples in bytes.
    pub set_rate: fn(usize),
    /// Samples taken so far, and samples that had to be dropped.
    pub samples: fn() -> (u64, u64),
}

impl Controls {
    /// The controls of an allocator without a profiler.
    pub const NONE: Self = Self { set_rate: |_| (), samples: || (0, 0) };
}

/// Serves an allocation subject: `churn SHAPE SIZES THREADS COUNT`, `rate BYTES`, `samples`, `live BYTES`,
/// `resident`.
///
/// # Panics
/// On a request it does not know.
pub fn run(controls: &Controls) {
    let second = Second::start();
    serve(|request| match request.word() {
        "churn" => vec![one_churn(request, &second)],
        "rate" => {
            (controls.set_rate)(request.number());
            vec![]
        }
        "samples" => {
            let (taken, dropped) = (controls.samples)();
            vec![taken as f64, dropped as f64]
        }
        "live" => vec![live_heap::grow(request.number()) as f64],
        "resident" => vec![live_heap::resident().expect("benchmarks run on Linux") as f64],
        other => panic!("unknown request {other}"),
    });
}

fn one_churn(request: &mut Request<'_>, second: &Second) -> f64 {
    let shape = Shape::parse(request.word()).expect("a shape");
    let sizes = Sizes::parse(request.word()).expect("sizes");
    let threads = request.number();
    let count = request.number();
    match threads {
        1 => measured(shape, &sizes.table(), count),
        // Each thread times itself, so neither waits for the other within its measurement.
        2 => second.beside(shape, sizes, count),
        _ => panic!("one thread or two"),
    }
}

/// Measures a loop. Both threads share one copy of the loops: two copies would have two layouts, which is visible in a
/// loop this short.
#[inline(never)]
fn measured(shape: Shape, table: &[usize], count: usize) -> f64 {
    churn(shape, table, count)
}

type Work = (Shape, Sizes, usize);

/// The second thread. It lives as long as the subject: in a fresh thread every measurement would include the thread's
/// first sample and its first arena.
struct Second {
    work: Sender<Work>,
    result: Receiver<f64>,
    together: Arc<Barrier>,
}

impl Second {
    fn start() -> Self {
        let (work, works) = channel::<Work>();
        let (results, result) = channel();
        let together = Arc::new(Barrier::new(2));
        let barrier = Arc::clone(&together);
        thread::spawn(move || {
            for (shape, sizes, count) in works {
                let table = sizes.table();
                barrier.wait();
                if results.send(measured(shape, &table, count)).is_err() {
                    break;
                }
            }
        });
        Self { work, result, together }
    }

    /// Returns the mean of both threads' nanoseconds per object, while both churn.
    fn beside(&self, shape: Shape, sizes: Sizes, count: usize) -> f64 {
        let table = sizes.table();
        self.work.send((shape, sizes, count)).expect("the second thread lives");
        self.together.wait();
        let first = measured(shape, &table, count);
        let second = self.result.recv().expect("the second thread lives");
        (first + second) / 2.0
    }
}

/// The body of a subject whose allocator rtprof samples: `profiled_by_rtprof!(Inner, expression of Inner)`.
///
/// This is a macro, because it expands in the subject: this library itself must not be linked with rtprof.
#[macro_export]
macro_rules! profiled_by_rtprof {
    ($inner:ty, $value:expr) => {
        #[global_allocator]
        static ALLOC: rtprof::ProfAlloc<$inner> = rtprof::ProfAlloc::new($value);

        fn main() {
            $crate::subject::run(&$crate::subject::Controls {
                set_rate: |bytes| {
                    rtprof::set_mem_profile_rate(bytes);
                },
                samples: || {
                    let taken: i64 =
                        rtprof::mem_profile(true).iter().map(|record| record.alloc_objects).sum();
                    let heap = rtprof_runtime::counters::CountedProfile::Heap;
                    (taken as u64, rtprof_runtime::counters::total(heap))
                },
            });
        }
    };
}
