//! The part for services, with rtprof: what of it is on is the mode.
//!
//! | mode | on |
//! |---|---|
//! | `off` | `init` with `RTPROF=off`; the tasks are instrumented |
//! | `heap` | the heap profile at its default rate |
//! | `tasks` | the tasks are instrumented |
//! | `block`, `mutex` | the profile at the rate of `init` |
//! | `defaults` | `init` with its defaults; the tasks are instrumented |
//! | `trace` | a trace; the tasks are instrumented |
//! | `cpu` | a CPU profile at 100 Hz |

#[path = "../traced.rs"]
mod traced;

use rtprof::task::instrument;
use rtprof_benches::adopter;
use rtprof_benches::async_work::{Plain, Spawn};
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// As `init` sets them.
const BLOCK_RATE: u64 = 10_000;
const MUTEX_FRACTION: i64 = 10;

/// How tasks are spawned.
#[derive(Clone, Copy)]
enum Spawning {
    /// By tokio alone.
    Plain,
    /// And rtprof follows them.
    Instrumented,
}

impl Spawn for Spawning {
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Plain => Plain.spawn(future),
            Self::Instrumented => tokio::spawn(instrument(future)),
        }
    }
}

fn main() {
    adopter::run(set_up);
}

fn set_up(mode: &str) -> Spawning {
    if !matches!(mode, "heap" | "defaults") {
        rtprof::set_mem_profile_rate(0);
    }
    match mode {
        "heap" => Spawning::Plain,
        "block" => {
            rtprof::set_block_profile_rate(BLOCK_RATE);
            Spawning::Plain
        }
        "mutex" => {
            rtprof::set_mutex_profile_fraction(MUTEX_FRACTION);
            Spawning::Plain
        }
        "cpu" => {
            rtprof::pprof::start_cpu_profile(std::io::sink()).expect("no other profile is taken");
            Spawning::Plain
        }
        "tasks" => Spawning::Instrumented,
        "trace" => {
            traced::set_trace(true);
            Spawning::Instrumented
        }
        "off" => {
            init("RTPROF", "off");
            Spawning::Instrumented
        }
        "defaults" => {
            init("RTPROF_ADDR", "127.0.0.1:0");
            Spawning::Instrumented
        }
        other => panic!("unknown mode {other}"),
    }
}

/// Initialises rtprof with one variable other than usual.
fn init(variable: &str, value: &str) {
    // SAFETY: this is the first request, so the program has one thread.
    unsafe { std::env::set_var(variable, value) };
    rtprof::init().expect("the variables are valid, and a port is free");
}
