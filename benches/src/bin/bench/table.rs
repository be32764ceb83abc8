//! The table, and the formatting of its cells.

use std::fmt;

use rtprof_benches::statistics::{excess, median, min, ratio};
use rtprof_benches::written::Verdict;

use crate::budgets::Budget;
use crate::limit::{Limit, Measured};

/// The limits of a row, and what the measurement says of them.
#[derive(Clone)]
pub(crate) struct Judgement {
    /// The limits as a reader sees them.
    pub(crate) limits: String,
    pub(crate) verdict: Verdict,
}

/// A value of a budget's quantity, for the report.
#[derive(Clone)]
pub(crate) struct Figure {
    pub(crate) budget: &'static Budget,
    pub(crate) measured: Measured,
    /// The project, if it is not rtprof.
    pub(crate) other: Option<&'static str>,
}

/// A row. Empty cells stay empty.
#[derive(Clone, Default)]
pub(crate) struct Row {
    /// The subject of the measurement.
    pub(crate) what: String,
    /// The contender.
    pub(crate) who: String,
    pub(crate) median: String,
    pub(crate) min: String,
    /// How many times the baseline.
    pub(crate) ratio: String,
    /// How much more than the baseline.
    pub(crate) excess: String,
    /// The name of the baseline.
    pub(crate) against: String,
    /// Samples taken, and dropped.
    pub(crate) samples: String,
    /// The number of yardsticks by which a time is judged.
    pub(crate) yardsticks: String,
    pub(crate) judgement: Option<Judgement>,
    pub(crate) figures: Vec<Figure>,
    /// The cost of the same elsewhere, from an earlier measurement.
    pub(crate) anchor: &'static str,
    /// Remarks that the figures do not show.
    pub(crate) notes: String,
}

/// The unit of a quantity.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Nanos,
    Millis,
    Bytes,
    MebiBytes,
    Percent,
}

impl Unit {
    /// Returns its symbol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::Millis => "ms",
            Self::Bytes => "B",
            Self::MebiBytes => "MiB",
            Self::Percent => "%",
        }
    }

    /// Returns the nanoseconds of one, if it is a time.
    pub(crate) const fn nanos(self) -> Option<f64> {
        match self {
            Self::Nanos => Some(1.0),
            Self::Millis => Some(1e6),
            Self::Bytes | Self::MebiBytes | Self::Percent => None,
        }
    }

    /// Formats a value in this unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Nanos if value.abs() < 100.0 => format!("{value:.1} ns"),
            Self::Nanos => format!("{value:.0} ns"),
            Self::Millis => format!("{value:.2} ms"),
            Self::Bytes => format!("{value:.2} B"),
            Self::Percent => format!("{value:.1} %"),
            Self::MebiBytes => format!("{:.2} MiB", value / (1024.0 * 1024.0)),
        }
    }

    /// Formats a difference, with its sign.
    pub(crate) fn show_excess(self, value: f64) -> String {
        format!("{}{}", if value < 0.0 { "−" } else { "+" }, self.show(value.abs()))
    }
}

impl Row {
    /// Makes a row with the median and the minimum of some values.
    pub(crate) fn of(what: impl Into<String>, who: impl Into<String>, values: &[f64], unit: Unit) -> Self {
        Self {
            what: what.into(),
            who: who.into(),
            median: unit.show(median(values)),
            min: unit.show(min(values)),
            ..Self::default()
        }
    }

    /// Compares the values with a baseline of the same rounds.
    pub(crate) fn against(mut self, name: &str, values: &[f64], baseline: &[f64], unit: Unit) -> Self {
        self.ratio = format!("{:.3}", ratio(values, baseline));
        self.excess = unit.show_excess(excess(values, baseline));
        self.against = name.to_owned();
        self
    }

    /// Sets how many samples were taken and dropped.
    pub(crate) fn samples(mut self, [taken, dropped]: [f64; 2]) -> Self {
        self.samples = format!("{taken} / {dropped}");
        self
    }

    /// Sets the remarks.
    pub(crate) fn notes(mut self, notes: impl Into<String>) -> Self {
        self.notes = notes.into();
        self
    }

    /// Adds a limit that concerns this part only, and is met or not.
    pub(crate) fn budget(mut self, limit: impl Into<String>, met: bool, anchor: &'static str) -> Self {
        self.judge(limit.into(), if met { Verdict::Met } else { Verdict::NotMet });
        self.anchor(anchor)
    }

    /// Adds a limit and the value that is compared with it.
    pub(crate) fn within(mut self, limit: &Limit, measured: impl Into<Measured>) -> Self {
        let measured = measured.into();
        self.judge(limit.show_limit(), limit.verdict(measured));
        let yardsticks = limit.show_yardsticks(measured);
        if !yardsticks.is_empty() {
            self.yardsticks = yardsticks;
        }
        self
    }

    /// The verdict of a row is the worst of its limits'.
    fn judge(&mut self, limit: String, verdict: Verdict) {
        self.judgement = Some(match self.judgement.take() {
            None => Judgement { limits: limit, verdict },
            Some(before) => Judgement {
                limits: format!("{}, {limit}", before.limits),
                verdict: match (before.verdict, verdict) {
                    (Verdict::NotMet, _) | (_, Verdict::NotMet) => Verdict::NotMet,
                    (Verdict::Unclear, _) | (_, Verdict::Unclear) => Verdict::Unclear,
                    (Verdict::Met, Verdict::Met) => Verdict::Met,
                },
            },
        });
    }

    /// Sets rtprof's value of a budget's quantity.
    pub(crate) fn keeps(mut self, budget: &'static Budget, measured: impl Into<Measured>) -> Self {
        let measured = measured.into();
        self.figures.push(Figure { budget, measured, other: None });
        self.within(&budget.limit, measured)
    }

    /// Sets another project's value of a budget's quantity.
    pub(crate) fn beside(
        mut self,
        budget: &'static Budget,
        other: &'static str,
        measured: impl Into<Measured>,
    ) -> Self {
        self.figures.push(Figure { budget, measured: measured.into(), other: Some(other) });
        self
    }

    /// Sets the cost of the same elsewhere.
    pub(crate) fn anchor(mut self, anchor: &'static str) -> Self {
        self.anchor = anchor;
        self
    }
}

/// The rows so far.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Adds a row below the others.
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Changes the row that was added last.
    pub(crate) fn amend(&mut self, more: impl FnOnce(&mut Row)) {
        more(self.rows.last_mut().expect("a row was added"));
    }
}

const HEADINGS: [&str; 13] = [
    "what",
    "who",
    "median",
    "min",
    "×",
    "+",
    "against",
    "samples / dropped",
    "yardsticks",
    "budget",
    "met",
    "anchor",
    "notes",
];

/// Explains the columns.
const LEGEND: &str = "Medians and minima over rounds in which all contenders take their turn. × and + are medians of \
    the quotients and differences within a round, so noise that hits a whole round cancels. A time is judged by the \
    yardsticks that are measured in the same rounds (docs/benchmarks.md), and the limit in ns or ms is for the machine on \
    which it was set. A limit is unclear if the value was above it in some tenths of the run and below it in others. \
    Anchors come from other \
    runs on machines of the same kind.\n\n";

/// With `{:#}` the columns are not aligned: the notes of one row would make all rows of a file long.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(LEGEND)?;
        let cells = self.rows.iter().map(|row| {
            let (limit, met) = match &row.judgement {
                Some(Judgement { limits, verdict }) => (limits.as_str(), verdict.word()),
                None => ("", ""),
            };
            [
                row.what.as_str(),
                &row.who,
                &row.median,
                &row.min,
                &row.ratio,
                &row.excess,
                &row.against,
                &row.samples,
                &row.yardsticks,
                limit,
                met,
                row.anchor,
                &row.notes,
            ]
        });
        let lines: Vec<[&str; 13]> = std::iter::once(HEADINGS).chain(cells).collect();
        let widths: [usize; 12] = std::array::from_fn(|column| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        });
        for (number, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(widths) {
                write!(out, "| {cell:width$} ")?;
            }
            writeln!(out, "|")?;
            if number == 0 {
                for width in widths {
                    write!(out, "|{}", "-".repeat(width.max(1) + 2))?;
                }
                writeln!(out, "|")?;
            }
        }
        let count = |verdict: Verdict| {
            let judgements = self.rows.iter().filter_map(|row| row.judgement.as_ref());
            judgements.filter(|judgement| judgement.verdict == verdict).count()
        };
        let [met, not_met, unclear] = [Verdict::Met, Verdict::NotMet, Verdict::Unclear].map(count);
        writeln!(
            out,
            "\nOf {} budgets {met} are met, {not_met} are not, {unclear} are unclear.",
            met + not_met + unclear
        )
    }
}
