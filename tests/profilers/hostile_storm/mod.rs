//! All that hostile programs do, at the same time, while everything is recorded and asked for: the program goes on, each
//! answer is whole, and what can be counted is counted exactly.
//!
//! A few seconds here; `ci/storm.sh` lets it run for a quarter of an hour in each kind of build.
#![cfg(all(target_os = "linux", target_env = "gnu", not(target_feature = "crt-static")))]

mod hosts;
mod readers;
mod sums;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, scope, sleep};
use std::time::{Duration, Instant};

use rtprof::num_goroutine;
use test_support::contention::{record_everything, record_nothing};
use test_support::{Background, PATIENCE, descriptors, fork, stress, until};

const TEST: &str = "nothing_breaks_and_all_is_counted";
const LEAST: Duration = Duration::from_secs(5);
/// A thread that only waits, and is in each dump.
const LASTING: &str = "lasts";

/// What one thread does again and again.
struct Actor {
    name: &'static str,
    round: fn(),
    rounds: AtomicU64,
}

impl Actor {
    const fn new(name: &'static str, round: fn()) -> Self {
        Self { name, round, rounds: AtomicU64::new(0) }
    }
}

static ACTORS: [Actor; 18] = [
    Actor::new("begin and end", hosts::threads_begin_and_end),
    Actor::new("are cancelled", hosts::threads_are_cancelled),
    Actor::new("jump", hosts::jumps_out_of_a_wait),
    Actor::new("unwind", hosts::unwinds_out_of_a_wait),
    Actor::new("load", hosts::loads_and_unloads),
    Actor::new("handle", hosts::handles_on_a_small_stack),
    Actor::new("have timers", hosts::has_a_timer),
    Actor::new("read signals", hosts::reads_signals),
    Actor::new("fork", hosts::forks),
    Actor::new("open regions", hosts::opens_regions),
    Actor::new("poll tasks", hosts::polls_tasks),
    Actor::new("record", readers::records),
    Actor::new("sample", readers::samples),
    Actor::new("ask", readers::asks),
    Actor::new("write", readers::writes),
    Actor::new("request", readers::requests),
    Actor::new("sum objects", sums::objects),
    Actor::new("sum waits", sums::waits),
];

#[test]
fn nothing_breaks_and_all_is_counted() {
    hosts::build(TEST);
    fork::isolated(TEST, "", || {
        rtprof::set_mem_profile_rate(1);
        record_everything();
        hosts::install();
        readers::serve();
        let [goroutines, open] = [num_goroutine(), descriptors::open()];
        scope(|scope| {
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let lasts = Builder::new().name(LASTING.into());
            lasts.spawn_scoped(scope, move || ends.recv().ok()).expect("there is room for a thread");
            until("it has its name", || readers::is_listed(LASTING));
            storm();
            drop(end);
        });
        for actor in &ACTORS {
            println!("{}: {} rounds", actor.name, actor.rounds.load(Relaxed));
            assert!(actor.rounds.load(Relaxed) > 0);
        }
        until("all have ended", || num_goroutine() <= goroutines);
        let _shown = OnPanic(|| println!("open: {:#?}", descriptors::targets()));
        until("nothing stays open", || descriptors::open() <= open);
        record_nothing();
        sums::check();
    });
}

/// Calls a function if the thread panics.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Lets all act until the time is over and each has had a turn, or until one fails.
fn storm() {
    let (background, time) = (&Background::default(), stress().max(LEAST));
    scope(|scope| {
        let _ends = background.ends_here();
        let start = |actor: &'static Actor| {
            let round = || {
                (actor.round)();
                actor.rounds.fetch_add(1, Relaxed);
                // Otherwise the quick ones leave no processor time to the exports.
                sleep(Duration::from_millis(2));
            };
            let thread = Builder::new().name(actor.name.into());
            thread.spawn_scoped(scope, move || background.repeat(round)).expect("there is room for a thread")
        };
        let threads: Vec<_> = ACTORS.iter().map(start).collect();
        let started = Instant::now();
        let have_all_had_a_turn = || ACTORS.iter().all(|actor| actor.rounds.load(Relaxed) > 0);
        while started.elapsed() < time || !have_all_had_a_turn() {
            if let Some(failed) = threads.iter().position(|thread| thread.is_finished()) {
                panic!("the thread that is to {:?} failed", ACTORS[failed].name);
            }
            let all = || ACTORS.each_ref().map(|actor| (actor.name, actor.rounds.load(Relaxed)));
            assert!(started.elapsed() < time + 5 * PATIENCE, "one had no turn: {:?}", all());
            sleep(Duration::from_millis(10));
        }
    });
}
