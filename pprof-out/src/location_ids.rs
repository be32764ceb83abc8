//! The locations and mappings of a profile: the parts of addresses to which its samples refer, with their ids.

use rtprof_symbols::frames::{Piece, Visible};
use rtprof_symbols::locations::Locations;
use rtprof_symbols::object_file::hex;
use rtprof_symbols::symbol_cache::Symbols;

use crate::functions::Functions;
use crate::mapped_pages::MappedPages;
use crate::proto;
use crate::strings::StringTable;

/// The location ids of one profile, assigned at first use.
#[derive(Default)]
pub(crate) struct LocationIds {
    /// The ids of each address.
    ids: Vec<Ids>,
    /// The piece of an address for each id. The id is the position plus 1.
    given: Vec<(u32, Piece)>,
}

/// The ids of an address's locations.
#[derive(Default)]
struct Ids {
    /// The id of the location with all lines; 0 until it is used.
    whole: u64,
    /// The ids of locations with only some of the lines.
    pieces: Vec<(Piece, u64)>,
}

impl LocationIds {
    /// Collects the ids of the locations that are shown of the stack that was resolved last, and assigns new ids as
    /// needed.
    pub(crate) fn ids(&mut self, locations: &Locations, visible: Visible, ids: &mut Vec<u64>) {
        let addresses = locations.addresses();
        self.ids.resize_with(addresses.len(), Ids::default);
        for (frame, &at) in locations.stack().iter().enumerate().skip(visible.cut.frames) {
            let lines = || addresses[at as usize].symbols.lines.len();
            if let Some(piece) = visible.piece(frame, lines) {
                ids.push(id_of(&mut self.ids[at as usize], &mut self.given, at, piece));
            }
        }
    }

    /// Returns the locations that have an id, in the order of their ids.
    pub(crate) fn encoded<'a>(
        &'a self,
        locations: &'a Locations,
        functions: &'a mut Functions,
    ) -> impl Iterator<Item = proto::Location> + 'a {
        self.given.iter().zip(1..).map(|(&(at, piece), id)| {
            let address = &locations.addresses()[at as usize];
            let lines = piece.lines(address, locations.thread_start());
            proto::Location {
                id,
                mapping_id: address.module.map_or(0, |module| module as u64 + 1),
                address: address.return_address.wrapping_sub(1) as u64,
                line: lines
                    .iter()
                    .map(|line| proto::Line {
                        function_id: functions.id(&line.function),
                        line: i64::from(line.line),
                        column: i64::from(line.column),
                    })
                    .collect(),
                is_folded: false,
            }
        })
    }

    /// Returns all modules, the main executable first, because pprof takes the first mapping for it.
    ///
    /// A reader does not symbolize a mapping whose flags say that it is symbolized. Otherwise it replaces our lines by
    /// those in its copy of the file. So a flag is set where a reader could find nothing more: either every
    /// location has what the flag names, or the file had its full symbol table (for the names) or line tables (for the
    /// rest) and just has no entry for some address. A stripped file has no flag set.
    pub(crate) fn mappings(&self, locations: &Locations, strings: &mut StringTable) -> Vec<proto::Mapping> {
        let modules = locations.modules();
        let mut found = vec![LocationStats::default(); modules.len()];
        for &(at, _) in &self.given {
            let address = &locations.addresses()[at as usize];
            if let Some(module) = address.module {
                found[module].count(&address.symbols);
            }
        }
        modules
            .iter()
            .zip(&found)
            .enumerate()
            .map(|(at, (module, found))| {
                let pages = MappedPages::of(module);
                let state = locations.file_state(at);
                let has_functions = found.settled(found.named, state.has_symbol_table);
                let has_lines = found.settled(found.lined, state.has_lines());
                proto::Mapping {
                    id: at as u64 + 1,
                    memory_start: pages.start as u64,
                    memory_limit: pages.limit as u64,
                    file_offset: pages.file_offset,
                    filename: strings.index(&module.path),
                    build_id: strings.index(&hex(&module.build_id)),
                    has_functions,
                    has_filenames: has_lines,
                    has_line_numbers: has_lines,
                    has_inline_frames: has_lines && state.has_inlined_functions(),
                }
            })
            .collect()
    }
}

fn id_of(ids: &mut Ids, given: &mut Vec<(u32, Piece)>, at: u32, piece: Piece) -> u64 {
    if piece == Piece::Whole {
        if ids.whole == 0 {
            given.push((at, piece));
            ids.whole = given.len() as u64;
        }
        return ids.whole;
    }
    if let Some(&(_, id)) = ids.pieces.iter().find(|(known, _)| *known == piece) {
        return id;
    }
    given.push((at, piece));
    let id = given.len() as u64;
    ids.pieces.push((piece, id));
    id
}

/// Statistics about the locations of a module.
#[derive(Clone, Copy, Default)]
struct LocationStats {
    locations: usize,
    named: usize,
    lined: usize,
}

impl LocationStats {
    fn count(&mut self, symbols: &Symbols) {
        self.locations += 1;
        self.named += usize::from(!symbols.lines.is_empty());
        self.lined += usize::from(symbols.lines.iter().any(|line| line.line != 0));
    }

    fn settled(self, having: usize, file_is_complete: bool) -> bool {
        having > 0 && (file_is_complete || having == self.locations)
    }
}
