//! `go tool pprof -top`, and its expected output by our own reading of the same file.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::go::Go;
use crate::profile::Sample;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub flat: i64,
    pub cum: i64,
}

/// Without these options pprof leaves out values that are small beside the whole, as a test's allocations may be: an
/// object of the test harness, sampled at the default rate, counts ten thousand.
pub const EVERYTHING: [&str; 3] = ["-nodefraction=0", "-edgefraction=0", "-nodecount=100000"];

/// Returns the printed rows in their order. `unit` must be one that makes whole numbers.
pub fn rows(go: &Go, path: &Path, index: &str, unit: &str) -> Vec<(String, Row)> {
    rows_with(go, path, index, unit, &[])
}

/// As [`rows`], for a legacy text, whose addresses pprof looks up in the program by itself. That takes a minute in a
/// debug build, so there the rows are without names.
pub fn rows_of_text(go: &Go, path: &Path, index: &str, unit: &str) -> Vec<(String, Row)> {
    let options: &[&str] = if cfg!(debug_assertions) { &["-symbolize=none"] } else { &[] };
    rows_with(go, path, index, unit, options)
}

fn rows_with(go: &Go, path: &Path, index: &str, unit: &str, options: &[&str]) -> Vec<(String, Row)> {
    let index = format!("-sample_index={index}");
    let unit = format!("-unit={unit}");
    let mut arguments = vec!["-top", &index, &unit];
    arguments.extend(EVERYTHING);
    arguments.extend(options);
    arguments.push(path.to_str().expect("the build's folder has a plain name"));
    let text = go.pprof(&arguments);
    let rows = text.lines().skip_while(|line| !line.contains("flat%")).skip(1);
    rows.map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |word: &str| {
            let digits = word.trim_end_matches(char::is_alphabetic);
            digits.parse().unwrap_or_else(|_| panic!("Go {}: no number in {line:?}", go.version))
        };
        let name = words[5..].join(" ");
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)");
        (name.to_owned(), Row { flat: number(words[0]), cum: number(words[3]) })
    })
    .filter(|(_, row)| row.flat != 0 || row.cum != 0)
    .collect()
}

/// Returns the expected rows by function, from our own reading.
pub fn expected(samples: &[Sample], value: usize) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for sample in samples {
        let mut seen = HashSet::new();
        for (depth, frame) in sample.frames.iter().enumerate() {
            let row = rows.entry(frame.function.clone()).or_insert(Row { flat: 0, cum: 0 });
            row.flat += if depth == 0 { sample.values[value] } else { 0 };
            row.cum += if seen.insert(&frame.function) { sample.values[value] } else { 0 };
        }
    }
    rows.retain(|_, row| row.flat != 0 || row.cum != 0);
    rows
}

/// Checks that pprof prints these rows of a file. A failure shows only the rows that differ: a CPU profile has hundreds
/// of rows.
#[track_caller]
pub fn check(go: &Go, path: &Path, kind: &str, unit: &str, mut expected: BTreeMap<String, Row>) {
    let mut told: BTreeMap<_, _> = rows(go, path, kind, unit).into_iter().collect();
    let both: Vec<_> =
        expected.keys().filter(|&name| told.get(name) == expected.get(name)).cloned().collect();
    for name in both {
        told.remove(&name);
        expected.remove(&name);
    }
    assert_eq!(told, expected, "Go {}: -top of {kind} of {path:?}", go.version);
}

/// Returns the sum of the values at the functions themselves.
pub fn total(rows: &[(String, Row)]) -> i64 {
    rows.iter().map(|(_, row)| row.flat).sum()
}

/// Parses `1.23s` or `450ms`, as pprof prints times.
pub fn seconds(word: &str) -> f64 {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = word[..word.len() - unit.len()].parse().expect("a number");
    match unit {
        "s" => number,
        "ms" => number / 1e3,
        "mins" => number * 60.0,
        _ => panic!("{word} is no time that a test can take"),
    }
}
