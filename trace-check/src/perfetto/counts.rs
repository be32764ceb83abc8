//! Compares the counters of a trace with its slices.

use super::{EventKind, Trace, Track};

/// The records of a generation may be a little later than its end, and events are moved by nanoseconds so that they are in
/// order: a counter may lack changes so soon before it, and have changes so soon after it.
const BLUR: u64 = 2_000;

/// The moments at which slices begin and end.
#[derive(Default)]
struct Moments {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Moments {
    fn sort(&mut self) {
        self.begins.sort_unstable();
        self.ends.sort_unstable();
    }

    /// Returns how many slices are open at a time, and how many begin or end within [`BLUR`] of it.
    fn open_at(&self, time: u64) -> (i64, i64) {
        let until = |times: &[u64], time: u64| times.partition_point(|&moment| moment <= time) as i64;
        let near = |times: &[u64]| {
            until(times, time.saturating_add(BLUR)) - until(times, time.saturating_sub(BLUR + 1))
        };
        let open = until(&self.begins, time) - until(&self.ends, time);
        (open, near(&self.begins) + near(&self.ends))
    }
}

/// Checks that the counter of waiting tasks is the number of tasks with such a slice, and that there are not fewer
/// threads than threads with a slice. A counter has its value at the end of a step, or at the beginning of a generation.
pub(super) fn check(trace: &Trace) -> Result<(), String> {
    let (mut waiting, mut threads) = (Moments::default(), Moments::default());
    let is_task = |track: &Track| {
        let group = trace.tracks.get(&track.parent);
        group.and_then(|group| trace.tracks.get(&group.parent)).is_some_and(|it| it.name == "async tasks")
    };
    for slice in &trace.slices {
        let is_wait = matches!(&*slice.begin.category, "wait" | "wait-before-trace");
        let track = trace.track(slice.begin.track);
        let moments = match track.thread {
            Some(_) => &mut threads,
            None if is_wait && is_task(track) => &mut waiting,
            None => continue,
        };
        moments.begins.push(slice.begin.time);
        moments.ends.extend(slice.end);
    }
    waiting.sort();
    threads.sort();
    for event in &trace.events {
        let EventKind::Counter(value) = event.kind else { continue };
        let is_right = match &*trace.track(event.track).name {
            "waiting tasks" => {
                let (open, near) = waiting.open_at(event.time);
                value.abs_diff(open) <= near as u64
            }
            "threads" => {
                let (open, near) = threads.open_at(event.time);
                value + near >= open
            }
            "runnable tasks" => value >= 0,
            _ => continue,
        };
        if !is_right {
            let open = [waiting.open_at(event.time), threads.open_at(event.time)];
            return Err(format!("{event:?} of {:?}, but {open:?}", trace.track(event.track)));
        }
    }
    Ok(())
}
