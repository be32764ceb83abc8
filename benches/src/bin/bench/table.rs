//! The table, and the formatting of its cells.

use std::fmt;

use rtprof_benches::statistics::{excess, median, min, ratio};

use crate::budgets::Budget;

/// A limit, and whether the measurement keeps it.
#[derive(Clone)]
pub(crate) struct Verdict {
    /// The limit as a reader sees it.
    pub(crate) limit: String,
    /// Whether the measurement keeps it.
    pub(crate) met: bool,
}

/// A value of a budget's quantity, for the report.
#[derive(Clone)]
pub(crate) struct Figure {
    pub(crate) budget: &'static Budget,
    pub(crate) value: f64,
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
    pub(crate) verdict: Option<Verdict>,
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

    /// Sets a limit that concerns this part only.
    pub(crate) fn budget(mut self, limit: impl Into<String>, met: bool, anchor: &'static str) -> Self {
        self.verdict = Some(Verdict { limit: limit.into(), met });
        self.anchor(anchor)
    }

    /// Sets rtprof's value of a budget's quantity. A row can have several; its verdict is about all of them.
    pub(crate) fn keeps(mut self, budget: &'static Budget, value: f64) -> Self {
        let (limit, met) = (budget.show_limit(), budget.is_met(value));
        self.verdict = Some(match self.verdict {
            None => Verdict { limit, met },
            Some(before) => Verdict { limit: format!("{}, {limit}", before.limit), met: before.met && met },
        });
        self.figures.push(Figure { budget, value, other: None });
        self
    }

    /// Sets another project's value of a budget's quantity.
    pub(crate) fn beside(mut self, budget: &'static Budget, other: &'static str, value: f64) -> Self {
        self.figures.push(Figure { budget, value, other: Some(other) });
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

const HEADINGS: [&str; 12] = [
    "what",
    "who",
    "median",
    "min",
    "×",
    "+",
    "against",
    "samples / dropped",
    "budget",
    "met",
    "anchor",
    "notes",
];

/// Explains the columns.
const LEGEND: &str = "Medians and minima over rounds in which all contenders take their turn. × and + are medians of \
    the quotients and differences within a round, so noise that hits a whole round cancels. Anchors come from other \
    runs on machines of the same kind.\n\n";

/// With `{:#}` the columns are not aligned: the notes of one row would make all rows of a file long.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(LEGEND)?;
        let cells = self.rows.iter().map(|row| {
            let (limit, met) = match &row.verdict {
                Some(verdict) => (verdict.limit.as_str(), if verdict.met { "yes" } else { "**no**" }),
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
                limit,
                met,
                row.anchor,
                &row.notes,
            ]
        });
        let lines: Vec<[&str; 12]> = std::iter::once(HEADINGS).chain(cells).collect();
        let widths: [usize; 12] = std::array::from_fn(|column| match out.alternate() {
            true => 0,
            false => lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0),
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
        let verdicts: Vec<bool> =
            self.rows.iter().filter_map(|row| row.verdict.as_ref().map(|verdict| verdict.met)).collect();
        let met = verdicts.iter().filter(|&&met| met).count();
        writeln!(out, "\n{met} of {} budgets met.", verdicts.len())
    }
}
