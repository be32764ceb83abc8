//! Values by function: what `go tool pprof -top` shows.

use std::collections::HashMap;
use std::sync::Arc;

use rtprof_symbols::frames::Frames;

/// Values of a record that can be summed up.
pub(crate) trait Values: Copy + Default {
    fn add(&mut self, other: Self);
}

/// The sums of one function.
#[derive(Default)]
pub(crate) struct Sums<V> {
    /// Of the stacks that begin with it.
    pub(crate) flat: V,
    /// Of the stacks that it is in.
    pub(crate) cumulative: V,
}

/// Sums for every function.
#[derive(Default)]
pub(crate) struct ByFunction<V> {
    sums: HashMap<Arc<str>, Sums<V>>,
    /// The functions of the record at hand.
    seen: Vec<Arc<str>>,
}

impl<V: Values> ByFunction<V> {
    /// Adds a record.
    pub(crate) fn add(&mut self, frames: &Frames<'_>, values: V) {
        let Self { sums, seen } = self;
        seen.clear();
        for (address, lines) in frames.shown() {
            if lines.is_empty() {
                seen.push(address.stand_in.clone());
            }
            seen.extend(lines.iter().map(|line| line.function.name.clone()));
        }
        if let Some(leaf) = seen.first() {
            sums.entry(leaf.clone()).or_default().flat.add(values);
        }
        // A recursive function counts once for each record.
        seen.sort_unstable();
        seen.dedup();
        for function in seen.iter() {
            sums.entry(function.clone()).or_default().cumulative.add(values);
        }
    }

    /// The functions with their sums, in no order.
    pub(crate) fn into_sums(self) -> impl Iterator<Item = (Arc<str>, Sums<V>)> {
        self.sums.into_iter()
    }
}
