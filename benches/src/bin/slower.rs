//! Says which operations have become slower, from tables of the benchmarks before and after a change.
//!
//! `slower BEFORE.md AFTER.md [BEFORE.md AFTER.md]...`: each pair of tables was measured one right after the other. A row
//! is slower if its minimum is, in *every* pair, more than [`FACTOR`] times what it was before, and beyond [`FLOOR`]. The
//! minimum leaves out what disturbs a single round. A disturbance of a whole run hits one pair, so a few pairs leave only
//! what the change has made. Prints the slower rows, and ends with status 1 if there are any, and with 2 if nothing can
//! be said.
//!
//! Deliberately coarse: a function that the compiler places elsewhere in memory may take a fifth longer.

use std::collections::BTreeMap;
use std::process::ExitCode;

use rtprof_benches::written::rows;

/// How many times as long a slower operation takes, at least.
const FACTOR: f64 = 1.4;

/// How much longer it takes at least, in the unit of the row: less can be a matter of a single cache line.
const FLOOR: [(&str, f64); 4] = [("ns", 2.0), ("ms", 0.1), ("B", 0.5), ("MiB", 1.0)];

/// The least value of each row, with its unit, by subject and contender.
type Minima = BTreeMap<(String, String), (f64, String)>;

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    match compare(&paths) {
        Ok(slower) if slower.is_empty() => ExitCode::SUCCESS,
        Ok(slower) => {
            slower.iter().for_each(|line| println!("{line}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("slower: {error}");
            ExitCode::from(2)
        }
    }
}

fn compare(paths: &[String]) -> Result<Vec<String>, String> {
    if paths.is_empty() || paths.len() % 2 == 1 {
        return Err("usage: slower BEFORE.md AFTER.md [BEFORE.md AFTER.md]...".to_owned());
    }
    let tables = paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let minima = minima(&text);
            if minima.is_empty() { Err(format!("{path}: no row has a minimum")) } else { Ok(minima) }
        })
        .collect::<Result<Vec<Minima>, String>>()?;
    slower(&tables)
}

/// Returns a line for each row that is slower in every pair of tables.
///
/// # Errors
/// When fewer than half of the rows are in all tables.
fn slower(tables: &[Minima]) -> Result<Vec<String>, String> {
    let common: Vec<_> =
        tables[0].keys().filter(|key| tables.iter().all(|table| table.contains_key(*key))).collect();
    if common.len() < tables[0].len() / 2 {
        return Err(format!("only {} of {} rows are in all tables", common.len(), tables[0].len()));
    }
    let mut lines = vec![];
    for key in common {
        let pairs = tables.chunks_exact(2).map(|pair| (&pair[0][key], &pair[1][key]));
        let each = pairs.map(|(before, after)| excess(before, after)).collect::<Option<Vec<f64>>>();
        if let Some(times) = each {
            let (before, unit) = &tables[tables.len() - 2][key];
            let times: Vec<String> = times.iter().map(|times| format!("{times:.2}")).collect();
            let (what, who) = key;
            lines.push(format!("{what}; {who}: {} times {before} {unit}", times.join(", ")));
        }
    }
    Ok(lines)
}

/// Returns how many times as long it takes, if that is slower.
fn excess((before, unit): &(f64, String), (after, other): &(f64, String)) -> Option<f64> {
    let (_, floor) = FLOOR.iter().find(|(name, _)| name == unit && name == other)?;
    (*before > 0.0 && *after > before * FACTOR && after - before > *floor).then(|| after / before)
}

/// Reads the minima of a table. Rows without one, as those of peers that were left out, are left out.
fn minima(table: &str) -> Minima {
    rows(table).into_iter().filter_map(|(key, row)| Some((key, row.min?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str)]) -> Minima {
        let lines: Vec<String> =
            rows.iter().map(|(what, min)| format!("| {what} | rtprof | 9.9 ns | {min} | 1.0 | |")).collect();
        minima(&format!("| what | who | median | min | × |\n|---|---|---|---|---|\n{}\n", lines.join("\n")))
    }

    #[test]
    fn slower_is_what_is_slower_in_every_pair() {
        let before = table(&[("a", "10.0 ns"), ("b", "10.0 ns"), ("c", "1.0 ns"), ("d", "1.00 ms")]);
        let after = table(&[("a", "15.0 ns"), ("b", "15.0 ns"), ("c", "2.9 ns"), ("d", "1.30 ms")]);
        let again = table(&[("a", "16.0 ns"), ("b", "10.5 ns"), ("c", "2.9 ns"), ("d", "9.00 ms")]);
        let once = slower(&[before.clone(), after.clone()]).expect("a result");
        assert_eq!(once.len(), 2, "{once:?}");
        let twice = slower(&[before.clone(), after, before, again]).expect("a result");
        assert_eq!(twice, ["a; rtprof: 1.50, 1.60 times 10 ns"]);
    }

    #[test]
    fn percentages_and_values_below_zero_say_nothing() {
        let before = table(&[("a", "10.0 %"), ("b", "-3.0 ns"), ("c", "5.00 B")]);
        let after = table(&[("a", "90.0 %"), ("b", "30.0 ns"), ("c", "8.00 B")]);
        assert_eq!(slower(&[before, after]).expect("a result").len(), 1);
    }

    #[test]
    fn tables_of_other_rows_are_an_error() {
        let before = table(&[("a", "10.0 ns"), ("b", "10.0 ns"), ("c", "1.0 ns"), ("d", "1.0 ns")]);
        slower(&[before, table(&[("a", "10.0 ns")])]).expect_err("nothing to compare");
    }
}
