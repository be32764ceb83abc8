//! The budgets that every user of rtprof is promised.
//!
//! A part of the table measures a budget's quantity and gives it to [`Row::keeps`](crate::table::Row::keeps), or, for
//! another project, to [`Row::beside`](crate::table::Row::beside). The [report](crate::report) has one line and one
//! band of its chart for each budget. Limits that concern one part only stand in that part's driver.

use rtprof_benches::yardstick::Yardstick;

use crate::limit::{Limit, Scale};
use crate::table::Unit;

/// A quantity and its limit.
pub(crate) struct Budget {
    /// The quantity.
    pub(crate) what: &'static str,
    /// The part of the table that measures it.
    pub(crate) part: &'static str,
    pub(crate) limit: Limit,
    /// What others take for the same, measured at another time on a machine of the same kind.
    pub(crate) elsewhere: &'static [(&'static str, f64)],
}

const fn budget(what: &'static str, part: &'static str, scale: Scale, limit: f64) -> Budget {
    Budget { what, part, limit: Limit::new(scale, limit), elsewhere: &[] }
}

/// Makes a budget of a time.
const fn timed(
    what: &'static str,
    part: &'static str,
    scale: Scale,
    limit: f64,
    yardstick: Yardstick,
) -> Budget {
    Budget { what, part, limit: Limit::of_time(scale, limit, yardstick), elsewhere: &[] }
}

const NANOS: Scale = Scale::Amount(Unit::Nanos);
const MILLIS: Scale = Scale::Amount(Unit::Millis);

pub(crate) static PAIR_MORE: Budget =
    timed("alloc + free, 64 B, over System", "allocation", Scale::More(Unit::Nanos), 2.0, Yardstick::Pair);
pub(crate) static PAIR_TIMES: Budget = budget("the same, as a multiple", "allocation", Scale::Times, 1.15);
pub(crate) static RING: Budget = budget("alloc + free, 16 to 4096 B, live", "allocation", Scale::Times, 1.05);
pub(crate) static JEMALLOC: Budget =
    budget("added to jemalloc, of what its profiler adds", "allocation", SHARE, 50.0);
pub(crate) static SAMPLE_10: Budget = Budget {
    elsewhere: &[("Go", 1312.0)],
    ..timed("a sampled allocation, 10 frames", "sample", NANOS, 250.0, Yardstick::Walk)
};
pub(crate) static SAMPLE_32: Budget = Budget {
    elsewhere: &[("Go", 2248.0)],
    ..timed("a sampled allocation, 32 frames", "sample", NANOS, 300.0, Yardstick::Walk)
};
pub(crate) static SAMPLE_10_TABLES: Budget =
    timed("the same without frame pointers, 10 frames", "sample", NANOS, 500.0, Yardstick::Walk);
pub(crate) static SAMPLE_32_TABLES: Budget =
    timed("the same without frame pointers, 32 frames", "sample", NANOS, 900.0, Yardstick::Walk);
pub(crate) static MUTEX: Budget = Budget {
    elsewhere: &[("Go", 1.015)],
    ..budget("an uncontended Mutex, over that of parking_lot", "uncontended", Scale::Times, 1.02)
};
pub(crate) static BLOCK_EVENT: Budget = Budget {
    elsewhere: &[("Go", 167.0)],
    ..timed("an event of the block profile", "event", NANOS, 100.0, Yardstick::Walk)
};
pub(crate) static MUTEX_EVENT: Budget = Budget {
    elsewhere: &[("Go", 251.0)],
    ..timed("an event of the mutex profile", "event", NANOS, 150.0, Yardstick::Walk)
};
pub(crate) static TRACE_PLAIN: Budget = Budget {
    elsewhere: &[("Go 1.21", 50.0), ("Go 1.27", 87.0)],
    ..timed("a trace event without a stack", "trace", NANOS, 25.0, Yardstick::Walk)
};
pub(crate) static TRACE_STACK: Budget = Budget {
    elsewhere: &[("Go 1.21", 50.0), ("Go 1.27", 87.0)],
    ..timed("a trace event, 10 frames", "trace", NANOS, 45.0, Yardstick::Walk)
};
pub(crate) static TRACE_BYTES: Budget = Budget {
    elsewhere: &[("Go 1.21", 3.3), ("Go 1.27", 5.6)],
    ..budget("a trace event in the file", "trace", Scale::Amount(Unit::Bytes), 5.0)
};
pub(crate) static TRACE_OFF: Budget =
    timed("a hook while tracing is off", "trace", Scale::More(Unit::Nanos), 1.0, Yardstick::Walk);
pub(crate) static TASKS_10_000: Budget = Budget {
    elsewhere: &[("Go", 7.2)],
    ..timed("goroutine profile, 10,000 tasks", "tasks", MILLIS, 4.0, Yardstick::Pair)
};
pub(crate) static TASKS_100_000: Budget = Budget {
    elsewhere: &[("Go", 66.0)],
    ..timed("goroutine profile, 100,000 tasks", "tasks", MILLIS, 40.0, Yardstick::Pair)
};
pub(crate) static STALL: Budget = Budget {
    elsewhere: &[("Go", 0.17)],
    ..budget("pause of a running task or thread meanwhile", "tasks", Scale::More(Unit::Millis), 0.1)
};
pub(crate) static EXPORT: Budget = Budget {
    elsewhere: &[("Go", 20.6)],
    ..timed("heap profile of 10,000 records, 30 frames", "export", MILLIS, 12.0, Yardstick::Pair)
};
pub(crate) static CPU_SAMPLES: Budget =
    budget("samples that arrive at 1000 Hz", "cpu", Scale::PercentAtLeast, 99.0);
pub(crate) static MEMORY: Budget = budget("memory beside 1 GiB of live objects", "footprint", SHARE, 1.0);

/// The share of another amount.
const SHARE: Scale = Scale::Amount(Unit::Percent);

/// All of them, in the order of the report.
pub(crate) static ALL: [&Budget; 21] = [
    &PAIR_MORE,
    &PAIR_TIMES,
    &RING,
    &JEMALLOC,
    &SAMPLE_10,
    &SAMPLE_32,
    &SAMPLE_10_TABLES,
    &SAMPLE_32_TABLES,
    &MUTEX,
    &BLOCK_EVENT,
    &MUTEX_EVENT,
    &TRACE_PLAIN,
    &TRACE_STACK,
    &TRACE_BYTES,
    &TRACE_OFF,
    &TASKS_10_000,
    &TASKS_100_000,
    &STALL,
    &EXPORT,
    &CPU_SAMPLES,
    &MEMORY,
];
