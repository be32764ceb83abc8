//! Compares the counters of a trace with its slices.

use std::ops::RangeInclusive;

use super::trace::{EventKind, Trace, Track};

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

    /// Returns how many slices are open at a time: the fewest and the most, if some begin or end just then.
    fn open_at(&self, time: u64) -> RangeInclusive<i64> {
        let [before, after] = [time.saturating_sub(1), time].map(|time| {
            [&self.begins, &self.ends].map(|moments| moments.partition_point(|&it| it <= time) as i64)
        });
        before[0] - after[1]..=after[0] - before[1]
    }
}

/// Checks that the counter of waiting tasks is the number of tasks with such a slice, and that there are not fewer
/// threads than threads with a slice. A counter has its value at the end of a step, or at the beginning of a
/// generation. Counters before `generation` are left out.
pub(super) fn check(trace: &Trace, generation: u32) -> Result<(), String> {
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
    for event in trace.events.iter().filter(|event| event.generation >= generation) {
        let EventKind::Counter(value) = event.kind else { continue };
        let is_right = match &*trace.track(event.track).name {
            "waiting tasks" => waiting.open_at(event.time).contains(&value),
            "threads" => *threads.open_at(event.time).start() <= value,
            _ => continue,
        };
        if !is_right {
            let open = [waiting.open_at(event.time), threads.open_at(event.time)];
            return Err(format!("{event:?} of {:?}, but {open:?}", trace.track(event.track)));
        }
    }
    Ok(())
}
