//! Says in which rows two tables of the benchmarks judge differently.
//!
//! `verdicts ONE.md OTHER.md`: two runs of one build, for example one on an idle machine and one beside two busy loops.
//! Prints the rows with a limit that one run meets and the other does not, the share of the rows that do not contradict each
//! other, and how many are unclear in one run or the other. Ends with status 1 if the share is less than [`ENOUGH`], and
//! with 2 if nothing can be said.

use std::process::ExitCode;

use rtprof_benches::written::{Rows, Verdict, rows};

/// The percentage of rows that have to agree.
const ENOUGH: f64 = 95.0;

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let tables = match paths.iter().map(|path| read(path)).collect::<Result<Vec<Rows>, String>>() {
        Ok(tables) => tables,
        Err(error) => return failed(&error),
    };
    let [one, other] = &tables[..] else { return failed("usage: verdicts ONE.md OTHER.md") };
    let compared = compare(one, other);
    if compared.rows == 0 {
        return failed("the tables have no row with a limit in common");
    }
    compared.different.iter().for_each(|line| println!("{line}"));
    let share = compared.share();
    println!(
        "{share:.1} % of {} rows agree; {} of these are unclear in one run or both",
        compared.rows, compared.unclear
    );
    if share < ENOUGH { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("verdicts: {error}");
    ExitCode::from(2)
}

fn read(path: &str) -> Result<Rows, String> {
    std::fs::read_to_string(path).map(|text| rows(&text)).map_err(|error| format!("{path}: {error}"))
}

/// The rows with a limit in both tables.
struct Compared {
    rows: usize,
    /// Those of which one table or both say nothing.
    unclear: usize,
    /// A line for each that is judged differently.
    different: Vec<String>,
}

impl Compared {
    /// Returns the percentage that agrees.
    fn share(&self) -> f64 {
        (self.rows - self.different.len()) as f64 / self.rows as f64 * 100.0
    }
}

fn compare(one: &Rows, other: &Rows) -> Compared {
    let mut compared = Compared { rows: 0, unclear: 0, different: vec![] };
    for ((what, who), row) in one {
        let there = other.get(&(what.clone(), who.clone()));
        let (Some(here), Some(there)) = (row.verdict, there.and_then(|row| row.verdict)) else { continue };
        compared.rows += 1;
        match (here, there) {
            (Verdict::Unclear, _) | (_, Verdict::Unclear) => compared.unclear += 1,
            (Verdict::Met, Verdict::NotMet) => {
                compared.different.push(format!("{what}; {who}: met only in the first"));
            }
            (Verdict::NotMet, Verdict::Met) => {
                compared.different.push(format!("{what}; {who}: met only in the second"));
            }
            (Verdict::Met, Verdict::Met) | (Verdict::NotMet, Verdict::NotMet) => {}
        }
    }
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_one_run_meets_are_named() {
        let table = |verdicts: &str| {
            let lines: Vec<String> = verdicts
                .split(' ')
                .enumerate()
                .map(|(row, met)| format!("| row {row} | us | {met} |"))
                .collect();
            rows(&format!("| what | who | met |\n|---|---|---|\n{}", lines.join("\n")))
        };
        let compared =
            compare(&table("yes yes **no** - **no** unclear"), &table("yes **no** **no** yes yes yes"));
        assert_eq!(compared.rows, 5, "a row without a limit is left out");
        assert_eq!(
            compared.different,
            ["row 1; us: met only in the first", "row 4; us: met only in the second"]
        );
        assert_eq!(compared.unclear, 1);
        assert!((compared.share() - 60.0).abs() < 1e-9);
    }
}
