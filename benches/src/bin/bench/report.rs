//! The report on the budgets: a Markdown page, a chart, and the whole table.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use rtprof_benches::statistics::{max, min};
use rtprof_benches::written::Verdict;

use crate::budgets::{ALL, Budget};
use crate::chart;
use crate::limit::Measured;
use crate::table::{Row, Table};

/// Writes `budgets.md` and `budgets.svg` into a directory, which is created.
pub(crate) fn write(directory: &Path, machine: &str, table: &Table) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let bands: Vec<Band<'_>> = ALL.iter().map(|budget| Band::of(budget, table)).collect();
    fs::write(directory.join("budgets.md"), page(&bands, machine))?;
    fs::write(directory.join("budgets.svg"), chart::draw(&bands)?)
}

/// A budget with everything that was measured of it.
pub(crate) struct Band<'a> {
    pub(crate) budget: &'static Budget,
    /// rtprof's rows, and their values.
    pub(crate) ours: Vec<(&'a Row, Measured)>,
    pub(crate) others: Vec<Other>,
}

/// What another project takes.
pub(crate) struct Other {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<Measured>,
    /// Whether it was measured in the same run.
    pub(crate) is_now: bool,
}

impl Other {
    /// Formats the values, or their range.
    fn show(&self, budget: &Budget) -> String {
        let values: Vec<f64> = self.values.iter().map(|measured| measured.value).collect();
        let [least, most] = [min(&values), max(&values)].map(|value| budget.limit.show(value.into()));
        let range = if least == most { least } else { format!("{least} to {most}") };
        format!("{}: {range}{}", self.name, if self.is_now { "" } else { "\\*" })
    }
}

impl<'a> Band<'a> {
    fn of(budget: &'static Budget, table: &'a Table) -> Self {
        let mut band = Self { budget, ours: vec![], others: vec![] };
        for row in table.rows() {
            for figure in row.figures.iter().filter(|figure| std::ptr::eq(figure.budget, budget)) {
                match figure.other {
                    Some(name) => band.add(name, figure.measured, true),
                    None => band.ours.push((row, figure.measured)),
                }
            }
        }
        for &(name, value) in budget.elsewhere {
            band.add(name, value.into(), false);
        }
        band
    }

    fn add(&mut self, name: &'static str, measured: Measured, is_now: bool) {
        match self.others.iter_mut().find(|other| other.name == name && other.is_now == is_now) {
            Some(other) => other.values.push(measured),
            None => self.others.push(Other { name, values: vec![measured], is_now }),
        }
    }
}

fn page(bands: &[Band<'_>], machine: &str) -> String {
    let values =
        || bands.iter().flat_map(|band| band.ours.iter().map(|(_, value)| (band.budget.limit, *value)));
    let count = |verdict| values().filter(|(limit, value)| limit.verdict(*value) == verdict).count();
    let mut page = format!(
        "# Budgets\n\n\
        Of {} measurements {} are within their budgets, {} are not, and {} are unclear.\n\n\
        ![The share of each budget that is used up](budgets.svg)\n\n\
        A budget is used up at 100 %. Of a multiple, the part above 1 counts, and of the samples that must arrive, those \
        that are missing. A time is judged by a yardstick that is measured in the same rounds, and the limit in ns or \
        ms is for the machine on which it was set. A budget is unclear if the value was above it in some tenths of the run \
        and below it in others. docs/benchmarks.md has the reasons where a budget is not met. Figures of others with a star \
        come from another time and a machine of the same kind, all other figures from this run:\n\n{machine}\n\
        | budget | limit | case | measured | used | others |\n|---|---|---|---|---|---|\n",
        values().count(),
        count(Verdict::Met),
        count(Verdict::NotMet),
        count(Verdict::Unclear),
    );
    for band in bands {
        let Band { budget, ours, others } = band;
        let mut others = others.iter().map(|other| other.show(budget)).collect::<Vec<_>>().join("; ");
        if ours.is_empty() {
            let _ = writeln!(
                page,
                "| {} | {} | not measured: part `{}` | | | {} |",
                budget.what,
                budget.limit.show_limit(),
                budget.part,
                others
            );
        }
        let mut begins = (budget.what, budget.limit.show_limit());
        for (row, value) in ours {
            let limit = &budget.limit;
            let used = format!("{:.0} %", limit.share(*value) * 100.0);
            let used = match limit.verdict(*value) {
                Verdict::Met => used,
                Verdict::NotMet => format!("**{used}**"),
                Verdict::Unclear => format!("{used}, unclear"),
            };
            let shown = format!("{}, {}", limit.show(*value), limit.show_yardsticks(*value));
            let _ = writeln!(
                page,
                "| {} | {} | {}; {} | {} | {used} | {} |",
                begins.0,
                begins.1,
                row.what,
                row.who,
                shown.trim_end_matches(", "),
                std::mem::take(&mut others)
            );
            begins = ("", String::new());
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets;

    #[test]
    fn every_budget_has_a_line_also_if_it_was_not_measured() {
        let mut table = Table::default();
        let row = |who: &str| Row { what: "pairs".to_owned(), who: who.to_owned(), ..Row::default() };
        table.add(row("ours").keeps(&budgets::PAIR_MORE, 1.0).keeps(&budgets::PAIR_TIMES, 1.3));
        table.add(row("theirs").beside(&budgets::PAIR_MORE, "dhat", 1320.0));
        table.add(row("theirs again").beside(&budgets::PAIR_MORE, "dhat", 1300.0));
        let bands: Vec<Band<'_>> = ALL.iter().map(|budget| Band::of(budget, &table)).collect();
        let page = page(&bands, "- CPU: of a test\n");
        let line = |of: &str| page.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{page}"));
        assert!(
            page.contains("Of 2 measurements 1 are within their budgets, 1 are not, and 0 are unclear"),
            "{page}"
        );
        let more = line("≤ +2 ns");
        assert!(more.contains("pairs; ours | +1.0 ns | 50 % | dhat: +1300 ns to +1320 ns |"), "{more}");
        assert!(line("≤ 1.15×").contains("1.300× | **200 %** |"), "{page}");
        assert!(
            line(budgets::EXPORT.what).contains("not measured: part `export` | | | Go: 20.60 ms\\* |"),
            "{page}"
        );
        let chart = chart::draw(&bands).expect("a chart without a file");
        for budget in ALL {
            assert!(chart.contains(budget.what), "{}", budget.what);
        }
        assert!(chart.contains("dhat"), "{chart}");
    }
}
