//! The part for threads that wait for each other: for a lock, for a message.
//!
//! Requests: `rates BLOCK MUTEX`; `trace on|off`; `way NUMBER` (which functions the stacks go through); `depth JOB
//! FRAMES` (answers the depth of recursion that gives recorded stacks of so many frames, and the frames that they
//! really have); and the jobs, each of which answers nanoseconds, and the waits and contended unlocks that were
//! recorded, all for one operation:
//! - `hand-over DEPTH COUNT`: passes a lock on, every time to a thread that sleeps for it;
//! - `ping-pong WHOSE PLACE DEPTH COUNT`: a round trip of two messages;
//! - `stream WHOSE PLACE BOUND COUNT`: one message of many, through a channel with room for BOUND (0: any number);
//! - `contend WHOSE THREADS INSIDE OUTSIDE MICROS`: a lock that several threads contend for, with INSIDE steps of work
//!   under it, and OUTSIDE steps without it, again and again.
//! - `work-queue WHOSE PRODUCERS WORKERS one|all JOBS`: one job that goes through a queue with room for 64; each change
//!   is notified to one waiting thread or to all.
//!
//! `dropped` answers the number of badly recorded events.

mod channels;
mod contention;
mod hand_over;
#[path = "../recorded.rs"]
mod recorded;
#[path = "../traced.rs"]
mod traced;
mod work_queue;

use rtprof_benches::descent::depth_for;
use rtprof_benches::serve::{Request, serve};
use rtprof_benches::team::{Placement, Team};

use recorded::{Profile, dropped, set_rates};
use traced::set_trace;
use work_queue::Load;

/// The number of threads of the largest job.
const THREADS: usize = 17;

fn main() {
    let team = Team::start(THREADS);
    let mut way = 0;
    serve(|request| match request.word() {
        "rates" => {
            set_rates(request.number(), request.number());
            vec![]
        }
        "trace" => {
            set_trace(request.word() == "on");
            vec![]
        }
        "way" => {
            way = request.number();
            vec![]
        }
        "depth" => {
            let job = request.word();
            let wanted = request.number();
            set_rates(1, 1);
            let frames_at = |depth| Profile::Block.frames_of(|| probe(&team, job, (way, depth)));
            let depth = depth_for(wanted, frames_at(1));
            let frames = frames_at(depth);
            set_rates(0, 0);
            vec![depth as f64, frames as f64]
        }
        "dropped" => vec![dropped()],
        job => {
            let before = [Profile::Block.events(), Profile::Mutex.events()];
            let done = run(&team, job, request, way);
            let block = Profile::Block.events() - before[0];
            let mutex = Profile::Mutex.events() - before[1];
            vec![done.nanos, block / done.operations, mutex / done.operations]
        }
    });
}

/// The result of a job.
struct Done {
    /// Nanoseconds for one operation.
    nanos: f64,
    /// The number of all operations, including those of the warm-up.
    operations: f64,
}

fn run(team: &Team, job: &str, request: &mut Request<'_>, way: usize) -> Done {
    match job {
        "hand-over" => {
            let depth = request.number();
            hand_over::measure(team, (way, depth), request.number())
        }
        "ping-pong" => {
            let (whose, place) = (request.word(), place(request));
            let depth = request.number();
            channels::ping_pong(whose)(team, place, (way, depth), request.number())
        }
        "stream" => {
            let (whose, place) = (request.word(), place(request));
            let bound = Some(request.number()).filter(|&bound| bound > 0);
            channels::stream(whose)(team, place, bound, request.number())
        }
        "contend" => {
            let measure = contention::of(request.word());
            let threads = request.number();
            let work = [request.number(), request.number()];
            assert!(threads <= THREADS, "the team has {THREADS} threads");
            measure(team, threads, work, request.number())
        }
        "work-queue" => {
            let measure = work_queue::of(request.word());
            let (producers, workers) = (request.number(), request.number());
            let tells_all = request.word() == "all";
            assert!(producers + workers <= THREADS, "the team has {THREADS} threads");
            measure(team, Load { producers, workers, tells_all, jobs: request.number() })
        }
        other => panic!("unknown request {other}"),
    }
}

/// Runs a few operations of a job that has a depth.
fn probe(team: &Team, job: &str, (way, depth): (usize, usize)) {
    const COUNT: usize = 16;
    let line = match job {
        "hand-over" => format!("{depth} {COUNT}"),
        _ => format!("rtprof {} {depth} {COUNT}", Placement::OneCore.word()),
    };
    run(team, job, &mut Request::new(&line), way);
}

fn place(request: &mut Request<'_>) -> Placement {
    Placement::parse(request.word()).expect("a place")
}

/// Returns the number of turns before the clock starts.
fn warm_up(count: usize) -> usize {
    count / 8
}
