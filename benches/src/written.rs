//! The driver's tables, as another program reads them.

use std::collections::BTreeMap;

/// The rows of a table by subject and contender.
pub type Rows = BTreeMap<(String, String), Row>;

/// What a row says of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All are met.
    Met,
    /// One is not.
    NotMet,
    /// One lies within the scatter.
    Unclear,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Met, Self::NotMet, Self::Unclear];

    /// Returns the word of a table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::NotMet => "**no**",
            Self::Unclear => "unclear",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
    }
}

/// What can be compared with the same row of another table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The least value, and its unit.
    pub min: Option<(f64, String)>,
    /// What the row says of its limits, if it has any.
    pub verdict: Option<Verdict>,
}

/// Reads the rows below each heading of a table. Lines of other text are left out.
pub fn rows(text: &str) -> Rows {
    let mut headings = vec![];
    let mut rows = Rows::new();
    for line in text.lines() {
        let Some(cells) = line.strip_prefix('|') else { continue };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        if cells[0] == "what" {
            headings = cells;
            continue;
        }
        let cell = |heading: &str| {
            let place = headings.iter().position(|found| *found == heading)?;
            cells.get(place).copied()
        };
        if let (Some(what), Some(who)) = (cell("what"), cell("who")) {
            let row =
                Row { min: cell("min").and_then(amount), verdict: cell("met").and_then(Verdict::parse) };
            rows.insert((what.to_owned(), who.to_owned()), row);
        }
    }
    rows
}

fn amount(cell: &str) -> Option<(f64, String)> {
    let (value, unit) = cell.split_once(' ')?;
    Some((value.parse().ok()?, unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_their_headings() {
        let text = "# Title\n\n| what | who | min | met |\n|---|---|---|---|\n| a | b | 3.5 ns | **no** |\n| c | d | | yes |\n";
        let rows = rows(text);
        let row = |what: &str, who: &str| rows[&(what.to_owned(), who.to_owned())].clone();
        assert_eq!(row("a", "b"), Row { min: Some((3.5, "ns".to_owned())), verdict: Some(Verdict::NotMet) });
        assert_eq!(row("c", "d"), Row { min: None, verdict: Some(Verdict::Met) });
    }
}
