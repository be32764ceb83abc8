//! The budgets that every user of rtprof is promised.
//!
//! A part of the table measures a budget's quantity and gives it to [`Row::keeps`](crate::table::Row::keeps), or, for
//! another project, to [`Row::beside`](crate::table::Row::beside). The [report](crate::report) has one line and one
//! band of its chart for each budget. Limits that concern one part only stand in that part's driver.

use crate::table::Unit;

/// A quantity and its limit.
pub(crate) struct Budget {
    /// The quantity.
    pub(crate) what: &'static str,
    /// The part of the table that measures it.
    pub(crate) part: &'static str,
    pub(crate) scale: Scale,
    pub(crate) limit: f64,
    /// What others take for the same, measured at another time on a machine of the same kind.
    pub(crate) elsewhere: &'static [(&'static str, f64)],
}

/// What a budget's numbers are.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// An amount, at most the limit.
    Amount(Unit),
    /// An amount beyond a baseline of the same rounds, at most the limit.
    More(Unit),
    /// A multiple of a baseline of the same rounds, at most the limit.
    Times,
    /// A percentage, at least the limit.
    PercentAtLeast,
}

impl Budget {
    /// Returns whether the value is within the limit.
    pub(crate) fn is_met(&self, value: f64) -> bool {
        match self.scale {
            Scale::Amount(_) | Scale::More(_) | Scale::Times => value <= self.limit,
            Scale::PercentAtLeast => value >= self.limit,
        }
    }

    /// Returns how much of the budget the value uses up; the budget is met up to 1.
    ///
    /// Of a multiple, the part above 1 counts, and of a percentage that must be reached, the part that is missing from
    /// 100: a limit of 1.02 is half used up by 1.01, and not by 99 hundredths. A value that is better than the baseline
    /// uses nothing.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let used = match self.scale {
            Scale::Amount(_) | Scale::More(_) => value / self.limit,
            Scale::Times => (value - 1.0) / (self.limit - 1.0),
            Scale::PercentAtLeast => (100.0 - value) / (100.0 - self.limit),
        };
        used.max(0.0)
    }

    /// Formats a value of this quantity.
    pub(crate) fn show(&self, value: f64) -> String {
        match self.scale {
            Scale::Amount(unit) => unit.show(value),
            Scale::More(unit) => unit.show_excess(value),
            Scale::Times if value >= 10.0 => format!("{value:.0}×"),
            Scale::Times => format!("{value:.3}×"),
            Scale::PercentAtLeast => Unit::Percent.show(value),
        }
    }

    /// Formats the limit as a reader sees it.
    pub(crate) fn show_limit(&self) -> String {
        let limit = self.limit;
        match self.scale {
            Scale::Amount(unit) => format!("≤ {limit} {}", unit.name()),
            Scale::More(unit) => format!("≤ +{limit} {}", unit.name()),
            Scale::Times => format!("≤ {limit}×"),
            Scale::PercentAtLeast => format!("≥ {limit} %"),
        }
    }
}

const fn budget(what: &'static str, part: &'static str, scale: Scale, limit: f64) -> Budget {
    Budget { what, part, scale, limit, elsewhere: &[] }
}

const NANOS: Scale = Scale::Amount(Unit::Nanos);
const MILLIS: Scale = Scale::Amount(Unit::Millis);

pub(crate) static PAIR_MORE: Budget =
    budget("alloc + free, 64 B, over System", "allocation", Scale::More(Unit::Nanos), 2.0);
pub(crate) static PAIR_TIMES: Budget = budget("the same, as a multiple", "allocation", Scale::Times, 1.15);
pub(crate) static RING: Budget = budget("alloc + free, 16 to 4096 B, live", "allocation", Scale::Times, 1.05);
pub(crate) static JEMALLOC: Budget =
    budget("added to jemalloc, of what its profiler adds", "allocation", SHARE, 50.0);
pub(crate) static SAMPLE_10: Budget = Budget {
    elsewhere: &[("Go", 1312.0)],
    ..budget("a sampled allocation, 10 frames", "sample", NANOS, 250.0)
};
pub(crate) static SAMPLE_32: Budget = Budget {
    elsewhere: &[("Go", 2248.0)],
    ..budget("a sampled allocation, 32 frames", "sample", NANOS, 300.0)
};
pub(crate) static SAMPLE_10_TABLES: Budget =
    budget("the same without frame pointers, 10 frames", "sample", NANOS, 500.0);
pub(crate) static SAMPLE_32_TABLES: Budget =
    budget("the same without frame pointers, 32 frames", "sample", NANOS, 900.0);
pub(crate) static MUTEX: Budget = Budget {
    elsewhere: &[("Go", 1.015)],
    ..budget("an uncontended Mutex, over that of parking_lot", "uncontended", Scale::Times, 1.02)
};
pub(crate) static BLOCK_EVENT: Budget =
    Budget { elsewhere: &[("Go", 167.0)], ..budget("an event of the block profile", "event", NANOS, 100.0) };
pub(crate) static MUTEX_EVENT: Budget =
    Budget { elsewhere: &[("Go", 251.0)], ..budget("an event of the mutex profile", "event", NANOS, 150.0) };
pub(crate) static TRACE_PLAIN: Budget = Budget {
    elsewhere: &[("Go 1.21", 50.0), ("Go 1.27", 87.0)],
    ..budget("a trace event without a stack", "trace", NANOS, 25.0)
};
pub(crate) static TRACE_STACK: Budget = Budget {
    elsewhere: &[("Go 1.21", 50.0), ("Go 1.27", 87.0)],
    ..budget("a trace event, 10 frames", "trace", NANOS, 45.0)
};
pub(crate) static TRACE_BYTES: Budget = Budget {
    elsewhere: &[("Go 1.21", 3.3), ("Go 1.27", 5.6)],
    ..budget("a trace event in the file", "trace", Scale::Amount(Unit::Bytes), 5.0)
};
pub(crate) static TRACE_OFF: Budget =
    budget("a hook while tracing is off", "trace", Scale::More(Unit::Nanos), 1.0);
pub(crate) static TASKS_10_000: Budget =
    Budget { elsewhere: &[("Go", 7.2)], ..budget("goroutine profile, 10,000 tasks", "tasks", MILLIS, 4.0) };
pub(crate) static TASKS_100_000: Budget = Budget {
    elsewhere: &[("Go", 66.0)],
    ..budget("goroutine profile, 100,000 tasks", "tasks", MILLIS, 40.0)
};
pub(crate) static STALL: Budget = Budget {
    elsewhere: &[("Go", 0.17)],
    ..budget("pause of a running task or thread meanwhile", "tasks", Scale::More(Unit::Millis), 0.1)
};
pub(crate) static EXPORT: Budget = Budget {
    elsewhere: &[("Go", 20.6)],
    ..budget("heap profile of 10,000 records, 30 frames", "export", MILLIS, 12.0)
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
