//! Hides the line tables of partial units from the parser.
//!
//! Problem: `dwz`, which compresses the debug information of Debian's and Fedora's packages, moves entries that several
//! units share into partial units, and each of these names the line table of a unit that uses it. Up to DWARF 4, which
//! rustc writes, only the tag of the first entry shows a partial unit. addr2line (0.26 and 0.27) looks only at the unit's
//! header, which says so from DWARF 5 on, takes a partial unit without addresses for a unit whose addresses are those of
//! its line table, and finds it instead of the unit that has the function.
//!
//! Consequence: inlined functions vanish, and the function has a line of another one.
//!
//! Scheme: in a copy of the table of abbreviations, the attribute that names the line table has another number wherever
//! the tag is that of a partial unit. No partial unit needs the table: it has no code, and we do not read where a
//! function is declared.

use std::collections::HashSet;

use addr2line::gimli::{self, Format, Reader, Result, constants};

use super::section::Section;

/// `DW_AT_call_origin`, which means nothing in the first entry of a unit, and has a number of as many bytes.
const NO_ATTRIBUTE: u8 = 0x7f;

/// Returns the changed bytes of `abbreviations`; `None` if `units`, the section with all units, has no partial unit with
/// a line table.
pub(super) fn without_line_tables(units: Section<'_>, abbreviations: Section<'_>) -> Option<Vec<u8>> {
    let mut attributes = Vec::new();
    // A length that is damaged hides the units after it from the parser too.
    let _ = find(units, abbreviations, &mut attributes);
    if attributes.is_empty() {
        return None;
    }
    let mut changed = abbreviations.to_slice().ok()?.into_owned();
    for at in attributes {
        changed[at] = NO_ATTRIBUTE;
    }
    Some(changed)
}

/// Collects the place in `abbreviations` of each attribute that names the line table of a partial unit.
fn find(mut units: Section<'_>, abbreviations: Section<'_>, attributes: &mut Vec<usize>) -> Result<()> {
    // Tens of thousands of units may share a table.
    let mut seen = HashSet::new();
    while !units.is_empty() {
        let (len, format) = units.read_initial_length()?;
        let unit = units.split(len)?;
        if let Ok(Some((table, code))) = first_entry(unit, format)
            && seen.insert((table, code))
            && let Ok(place) = line_table(table, code, abbreviations)
        {
            attributes.extend(place);
        }
    }
    Ok(())
}

/// Returns the place of a unit's abbreviations and the code of its first entry, up to DWARF 4.
fn first_entry(mut unit: Section<'_>, format: Format) -> Result<Option<(usize, u64)>> {
    if unit.read_u16()? > 4 {
        return Ok(None);
    }
    let table = unit.read_offset(format)?;
    let _address_size = unit.read_u8()?;
    Ok(Some((table, unit.read_uleb128()?)))
}

/// Returns the place of the attribute that names the line table in the abbreviation `code` of the table at `table`, if it
/// is that of a partial unit.
fn line_table(table: usize, code: u64, abbreviations: Section<'_>) -> Result<Option<usize>> {
    let mut rest = abbreviations;
    rest.skip(table)?;
    loop {
        let found = rest.read_uleb128()?;
        if found == 0 {
            return Ok(None);
        }
        let is_partial = rest.read_uleb128()? == u64::from(constants::DW_TAG_partial_unit.0);
        let _has_children = rest.read_u8()?;
        let mut place = None;
        loop {
            let at = rest.offset_from(&abbreviations);
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if name == 0 && form == 0 {
                break;
            }
            if form == u64::from(constants::DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            if name == u64::from(gimli::DW_AT_stmt_list.0) {
                place = Some(at);
            }
        }
        if found == code {
            return Ok(place.filter(|_| is_partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Abbreviations: a unit (1) and a partial unit (2), each with a name and a line table, and a table with an implicit
    /// constant before the partial unit (300).
    const TABLES: &[u8] = &[
        1, 0x11, 1, 0x03, 0x0e, 0x10, 0x17, 0, 0, //
        2, 0x3c, 1, 0x03, 0x0e, 0x10, 0x17, 0, 0, 0, //
        1, 0x34, 0, 0x3a, 0x21, 0x85, 0x01, 0, 0, 0xac, 0x02, 0x3c, 1, 0x10, 0x17, 0, 0, 0,
    ];
    const SECOND: u8 = 19;

    fn unit(version: u8, table: u8, code: &[u8]) -> Vec<u8> {
        let len = 7 + code.len() as u8 + 3;
        let header = [len, 0, 0, 0, version, 0, table, 0, 0, 0, 8];
        [&header[..], code, &[9; 3]].concat()
    }

    fn changed(units: &[Vec<u8>]) -> Vec<usize> {
        let units = units.concat();
        let changed = without_line_tables(Section::in_memory(&units), Section::in_memory(TABLES));
        let changed = changed.unwrap_or_else(|| TABLES.to_vec());
        let differs = |at: &usize| changed[*at] != TABLES[*at];
        let places: Vec<_> = (0..TABLES.len()).filter(differs).collect();
        assert!(places.iter().all(|at| (TABLES[*at], changed[*at]) == (0x10, NO_ATTRIBUTE)));
        places
    }

    #[test]
    fn only_partial_units_lose_their_line_table() {
        let whole = unit(4, 0, &[1]);
        let partial = unit(4, 0, &[2]);
        let other = unit(3, SECOND, &[0xac, 0x02]);
        assert_eq!(changed(std::slice::from_ref(&whole)), []);
        assert_eq!(changed(&[whole.clone(), partial.clone(), whole.clone()]), [14]);
        assert_eq!(changed(&[partial.clone(), partial.clone(), other]), [14, 32]);
        // The header of DWARF 5 says it.
        assert_eq!(changed(&[unit(5, 0, &[2])]), []);
        // Damaged: no such code, no such table, a cut unit after a whole one.
        assert_eq!(changed(&[unit(4, 0, &[7]), unit(4, 0, &[2])]), [14]);
        assert_eq!(changed(&[unit(4, 200, &[2])]), []);
        assert_eq!(changed(&[partial, vec![90, 0, 0, 0, 4]]), [14]);
    }
}
