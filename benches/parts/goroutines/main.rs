//! The part for snapshots of all threads.
//!
//! Requests: `start KIND COUNT FRAMES` (threads that wait on stacks with so many frames of recursion: `hooks` in a
//! channel of rtprof, `kernel` in one of std; answers the number of threads that have a whole stack), `snapshot`
//! (answers milliseconds, those of processor time, and records), `stall ROUNDS` (answers milliseconds for each round: the
//! longest pause of a running thread while snapshots are taken, and then in an equal time without snapshots).

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use rtprof_benches::descent::at_depth;
use rtprof_benches::processor::used_by_all;
use rtprof_benches::serve::serve;
use rtprof_benches::stall::Watch;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Snapshots in a round of `stall`: together they take some milliseconds.
const SNAPSHOTS: usize = 3;

fn main() {
    serve(|request| match request.word() {
        "start" => start(request.word(), request.number(), request.number()),
        "snapshot" => {
            let (started, used) = (Instant::now(), used_by_all());
            let all = black_box(rtprof::goroutine_profile());
            let (took, used) = (started.elapsed(), used_by_all() - used);
            vec![took.as_secs_f64() * 1e3, used.as_secs_f64() * 1e3, all.len() as f64]
        }
        "stall" => stall(request.number()),
        other => panic!("unknown request {other}"),
    });
}

fn start(kind: &str, count: usize, frames: usize) -> Vec<f64> {
    let all_run = Arc::new(Barrier::new(count + 1));
    for way in 0..count {
        let all_run = all_run.clone();
        let in_hooks = kind == "hooks";
        // The stacks are small, so that a thousand of them fit on every machine.
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let body = move || {
            all_run.wait();
            at_depth(way, frames, &mut || {
                // No message is ever sent.
                if in_hooks {
                    let (_send, receive) = rtprof::sync::mpsc::channel::<()>();
                    receive.recv().ok();
                } else {
                    let (_send, receive) = std::sync::mpsc::channel::<()>();
                    receive.recv().ok();
                }
            });
        };
        thread.spawn(body).expect("the machine has room for the threads");
    }
    all_run.wait();
    // The last threads begin their waits a moment later.
    let mut waiting = 0;
    for _ in 0..1_000 {
        let wait = |goroutine: &&rtprof::GoroutineRecord| goroutine.stack().len() > frames;
        waiting = rtprof::goroutine_profile().iter().filter(wait).count();
        if waiting >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    vec![waiting as f64]
}

fn stall(rounds: usize) -> Vec<f64> {
    let watch = Watch::default();
    std::thread::scope(|scope| {
        scope.spawn(|| watch.run());
        let snapshots = || (0..SNAPSHOTS).for_each(|_| drop(black_box(rtprof::goroutine_profile())));
        let pauses = watch.pauses(rounds, snapshots);
        watch.stop();
        pauses
    })
}
