//! `format=top`: a table of functions as text, for people who have nothing but curl.
//!
//! The columns are those of `go tool pprof -top`: a function's own value (*flat*), with its share of the total and the sum of
//! the shares so far, and the value of all stacks that contain the function (*cum*). A column that pprof has only with
//! `-lines` is the place: the line of the function that has most of its value.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use rtprof_runtime::process::own_files;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::sink::Sink;
use crate::snapshot::Snapshot;
use crate::text;

/// As many rows as are read on a screen. `go tool pprof -top` has all.
const ROWS: usize = 40;

/// A function's value, and that of all stacks with it.
#[derive(Clone, Copy, Default)]
struct Sums {
    flat: i64,
    cumulative: i64,
}

#[derive(Default)]
struct Function {
    sums: Sums,
    /// The same for each of its lines: file and number.
    places: HashMap<(Arc<str>, u32), Sums>,
}

/// A function in a stack, at one of its lines.
struct Call {
    name: Arc<str>,
    place: (Arc<str>, u32),
}

#[derive(Default)]
struct Table {
    functions: HashMap<Arc<str>, Function>,
    total: i64,
}

impl Snapshot {
    /// Writes a table of functions for people: the first lines of `go tool pprof -top`, each with the source line that has
    /// most of the function's value, and the snapshot's comments. `sample_type` is an index in
    /// [`sample_types`](Self::sample_types).
    ///
    /// # Errors
    /// As of [`write_collapsed`](Self::write_collapsed).
    pub fn write_top(
        &self,
        mut w: impl Write,
        sample_type: usize,
        symbolization: Symbolization,
    ) -> io::Result<()> {
        self.check_sample_type(sample_type)?;
        self.check_room()?;
        write(self, sample_type, self.view(symbolization), &mut Sink::new(&mut w))
    }
}

fn write(snapshot: &Snapshot, sample_type: usize, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut table = Table::default();
    let mut calls = Vec::new();
    let of_names = snapshot.for_each(view, |frames, values| {
        calls.clear();
        for (address, lines) in frames.shown() {
            if lines.is_empty() {
                calls.push(Call { name: address.stand_in.clone(), place: ("".into(), 0) });
            }
            calls.extend(lines.iter().map(|line| Call {
                name: line.function.name.clone(),
                place: (line.function.file.clone(), line.line),
            }));
        }
        table.add(&calls, values[sample_type]);
        Ok::<(), io::Error>(())
    })?;
    let mut out = head(snapshot, sample_type);
    table.write(snapshot.sample_types()[sample_type].1, &mut out);
    let comments: Vec<String> = snapshot.comments.iter().cloned().chain(of_names).collect();
    if !comments.is_empty() {
        out.push('\n');
        text::comments(&mut out, &comments);
    }
    sink.drain(&mut out.into_bytes())?;
    sink.flush()
}

/// The lines with which `go tool pprof -top` begins.
fn head(snapshot: &Snapshot, sample_type: usize) -> String {
    let mut head = format!("File: {}\n", own_files::program());
    let _ = writeln!(head, "Type: {}", snapshot.sample_types()[sample_type].0);
    let (_, duration) = snapshot.time_and_duration_nanos();
    if duration > 0 {
        let _ = writeln!(head, "Duration: {:.2}s", duration as f64 / 1e9);
    }
    head
}

impl Table {
    /// Adds a stack, leaf first. A recursive function counts once, at its innermost call.
    fn add(&mut self, calls: &[Call], value: i64) {
        if value == 0 {
            return;
        }
        // As in pprof: of a delta, additions and removals do not cancel.
        self.total = self.total.saturating_add(value.saturating_abs());
        let mut seen = Vec::with_capacity(calls.len());
        for (at, Call { name, place }) in calls.iter().enumerate() {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let function = self.functions.entry(name.clone()).or_default();
            let of_place = function.places.entry(place.clone()).or_default();
            for sums in [&mut function.sums, of_place] {
                sums.cumulative = sums.cumulative.saturating_add(value);
                if at == 0 {
                    sums.flat = sums.flat.saturating_add(value);
                }
            }
        }
    }

    fn write(&self, unit: &str, out: &mut String) {
        let mut rows: Vec<_> = self.functions.iter().collect();
        // Negative values are of a delta, and matter as much.
        let rank = |sums: Sums| (sums.flat.unsigned_abs(), sums.cumulative.unsigned_abs());
        rows.sort_unstable_by_key(|&(name, function)| (Reverse(rank(function.sums)), name));
        let shown = rows.len().min(ROWS);
        let _ = writeln!(
            out,
            "Showing top {shown} functions out of {}, {} total",
            rows.len(),
            amount(self.total, unit)
        );
        let _ = writeln!(out, "{:>10} {:>6} {:>6} {:>10} {:>6}", "flat", "flat%", "sum%", "cum", "cum%");
        let mut sum = 0i64;
        for (name, function) in &rows[..shown] {
            let Sums { flat, cumulative } = function.sums;
            sum = sum.saturating_add(flat);
            let _ = write!(
                out,
                "{:>10} {:>6} {:>6} {:>10} {:>6}  {}",
                amount(flat, unit),
                self.share(flat),
                self.share(sum),
                amount(cumulative, unit),
                self.share(cumulative),
                text::cut(name)
            );
            let places = function.places.iter();
            let place = places.max_by_key(|(place, sums)| (rank(**sums), Reverse(place.1)));
            if let Some(((file, line), _)) = place.filter(|((file, _), _)| !file.is_empty()) {
                let _ = write!(out, "  {}:{line}", text::cut(file));
            }
            out.push('\n');
        }
    }

    fn share(&self, value: i64) -> String {
        match self.total {
            0 => "-".to_owned(),
            total => format!("{:.2}%", value as f64 * 100.0 / total as f64),
        }
    }
}

/// Formats a value as pprof does, with two decimals of the largest unit of which it has one.
fn amount(value: i64, unit: &str) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let size = value.unsigned_abs() as f64;
        let step = steps.iter().rev().find(|(step, _)| size >= *step).unwrap_or(&steps[0]);
        match value as f64 / step.0 {
            whole if whole.fract() == 0.0 => format!("{whole}{}", step.1),
            part => format!("{part:.2}{}", step.1),
        }
    };
    match unit {
        "bytes" => scaled(&[(1.0, "B"), (1024.0, "kB"), (1048576.0, "MB"), (1073741824.0, "GB")]),
        "nanoseconds" => {
            scaled(&[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"), (60e9, "mins"), (3600e9, "hrs")])
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, line: u32) -> Call {
        Call { name: name.into(), place: ("src/main.rs".into(), line) }
    }

    #[test]
    fn functions_with_their_heaviest_lines() {
        let mut table = Table::default();
        table.add(&[call("app::read", 7), call("app::main", 20)], 100 << 10);
        table.add(&[call("app::read", 9), call("app::main", 21)], 300 << 10);
        // It calls itself.
        table.add(&[call("app::walk", 30), call("app::walk", 31), call("app::main", 20)], 600 << 10);
        table.add(&[Call { name: "[libc.so.6]".into(), place: ("".into(), 0) }], -(24 << 10));
        let mut out = String::new();
        table.write("bytes", &mut out);
        assert_eq!(
            out,
            "\
Showing top 4 functions out of 4, 1MB total
      flat  flat%   sum%        cum   cum%
     600kB 58.59% 58.59%      600kB 58.59%  app::walk  src/main.rs:30
     400kB 39.06% 97.66%      400kB 39.06%  app::read  src/main.rs:9
     -24kB -2.34% 95.31%      -24kB -2.34%  [libc.so.6]
        0B  0.00% 95.31%     1000kB 97.66%  app::main  src/main.rs:20
"
        );
    }

    #[test]
    fn amounts_in_the_units_of_pprof() {
        for (value, unit, expected) in [
            (0, "bytes", "0B"),
            (1023, "bytes", "1023B"),
            (1536, "bytes", "1.50kB"),
            (5 << 30, "bytes", "5GB"),
            (i64::MIN, "bytes", "-8589934592GB"),
            (999, "nanoseconds", "999ns"),
            (1_230_000_000, "nanoseconds", "1.23s"),
            (90_000_000_000, "nanoseconds", "1.50mins"),
            (12_345, "count", "12345"),
        ] {
            assert_eq!(amount(value, unit), expected);
        }
    }

    #[test]
    fn without_values_there_are_no_shares() {
        let mut out = String::new();
        Table::default().write("count", &mut out);
        assert!(out.starts_with("Showing top 0 functions out of 0, 0 total\n"), "{out}");
    }
}
