//! Looks up addresses in the file of a module.

use rtprof_runtime::modules::Module;

use crate::hook_names;
use crate::names::{self, Home, Name};
use crate::object_file::{ObjectFile, Store};
use crate::program_code::ProgramLines;
use crate::progress::Progress;
use crate::prune::{Origin, classify};
use crate::source_path::{Roots, Sources};
use crate::startup::Startup;
use crate::symbol_cache::{DebugState, FileState, Function, Line, SymbolCache, Symbols};

/// Looks up places in the file of `module`, and caches the results under `key`. Places stay unknown, and are not
/// cached, if the file is missing, is written to during the look-up, or cannot be read for a temporary reason: the next
/// attempt may succeed.
pub(crate) fn look_up(module: &Module, key: u32, places: &[u64], cache: &SymbolCache, progress: &Progress) {
    let mut store = Store::new(progress);
    let found = read(module, places, &store, cache, progress);
    match found {
        Some((state, found)) if store.is_unchanged() => {
            cache.set_file(key, state);
            for (place, symbols) in &found {
                cache.insert(key, *place, symbols);
            }
        }
        // The results came too late: the file has changed during the look-up.
        Some(_) => {}
        None if store.has_failed() => {}
        None => cache.set_unreadable(key),
    }
}

fn read(
    module: &Module,
    places: &[u64],
    store: &Store,
    cache: &SymbolCache,
    progress: &Progress,
) -> Option<(FileState, Vec<(u64, Symbols)>)> {
    let file = ObjectFile::open(module, store)?;
    let mut state = file.state();
    let mut found = Vec::with_capacity(places.len());
    if store.has_failed() {
        // Part of the file could not be read, so no result is reliable.
        return Some((state, found));
    }
    let find_roots = || roots(&file, module);
    let sources = Sources::new(&find_roots);
    for &place in places {
        progress.note();
        let symbols = symbols(&file, place, cache, &sources);
        let has_missed_unit = file.has_missed_unit();
        if !store.has_failed() {
            found.push((place, symbols));
            if has_missed_unit {
                state.debug = DebugState::WithoutUnits;
            }
        }
    }
    // One line of the program shows that the lines are not only the standard library's. Otherwise a function of rtprof
    // shows it; finding that in every search would cost the reading of one more unit.
    let has_own_lines = found.iter().any(|(_, symbols)| symbols.has_own_line);
    if state.debug == DebugState::Whole
        && !has_own_lines
        && let Some(own) = place_in(module, own_address())
    {
        let mut is_ours = false;
        file.lines(own, |line| is_ours |= line.line != 0);
        if !is_ours && !store.has_failed() {
            state.debug = DebugState::NotOurs;
        }
    }
    Some((state, found))
}

/// Returns the symbols of an address whose lines are known, innermost first.
pub(crate) fn of_lines(lines: Vec<Line>) -> Symbols {
    let sources = Sources::new(&Roots::default);
    let class = |line: &Line| {
        let Function { name, system_name, file } = &*line.function;
        classify(name, Origin::of(system_name, file, &sources), true)
    };
    Symbols {
        startup: Startup::of(lines.iter().map(|line| &*line.function.name), true),
        program: ProgramLines::of(&lines, &sources),
        has_own_line: lines.iter().any(|line| line.line != 0),
        classes: lines.iter().map(class).collect(),
        lines: lines.into(),
        offset: 0,
    }
}

/// Returns the place of one of our own addresses in a module's file; `None` in other modules, and in those of another
/// process.
fn place_in(module: &Module, address: usize) -> Option<u64> {
    let is_inside = !module.is_foreign() && module.contains(address);
    is_inside.then(|| address.wrapping_sub(module.bias) as u64)
}

/// Returns the address of a function of rtprof, which is built together with the program.
pub(crate) fn own_address() -> usize {
    own_address as fn() -> usize as usize
}

/// Returns what precedes the paths of our sources and of the standard library's, by the file of one function of each: both
/// were compiled for this module, or lie in another.
fn roots(file: &ObjectFile<'_>, module: &Module) -> Roots {
    let file_of = |address: usize| {
        let mut found = None;
        if let Some(place) = place_in(module, address) {
            // The last line is that of the function itself, the others are of inlined ones.
            file.lines(place, |line| found = line.file.map(str::to_owned));
        }
        found
    };
    Roots::of(file_of(own_address()).as_deref(), file_of(std::thread::yield_now as fn() as usize).as_deref())
}

/// A line whose name is not decided yet.
struct Draft {
    name: Option<String>,
    is_rust: bool,
    file: String,
    line: u32,
    column: u32,
}

fn symbols(file: &ObjectFile<'_>, address: u64, cache: &SymbolCache, sources: &Sources<'_>) -> Symbols {
    let mut drafts = Vec::new();
    file.lines(address, |line| {
        drafts.push(Draft {
            name: line.name.map(str::to_owned),
            is_rust: line.is_rust,
            file: line.file.unwrap_or_default().to_owned(),
            line: line.line,
            column: line.column,
        });
    });
    let symbol = file.symbol(address);
    if drafts.is_empty() && symbol.is_some() {
        drafts.push(Draft { name: None, is_rust: false, file: String::new(), line: 0, column: 0 });
    }
    let outermost = drafts.len().wrapping_sub(1);
    // Code that the compiler merged has line 0, but its function is known, and so are the functions inlined there.
    let inlines_known = drafts.iter().any(|draft| draft.line != 0 || draft.name.is_some());
    let full_name = symbol.as_ref().map(|s| names::demangle(&s.name).full);
    let last_file = drafts.last().map(|draft| draft.file.clone()).unwrap_or_default();
    let home = full_name.as_deref().and_then(|name| Home::of(name, &last_file, sources));
    let mut classes = Vec::with_capacity(drafts.len());
    let mut lines = Vec::with_capacity(drafts.len());
    for (at, draft) in drafts.iter().enumerate() {
        let symbol = symbol.as_ref().filter(|_| at == outermost).map(|s| &*s.name);
        let name = settle(draft, symbol, home.as_ref(), sources);
        let short = name.short();
        let short = hook_names::call_name(&name.full).map_or(short, Into::into);
        let function = cache.function(&short, &name.system, &draft.file);
        classes.push(classify(&name.full, Origin::of(&name.system, &draft.file, sources), inlines_known));
        lines.push(Line { function, line: draft.line, column: draft.column });
    }
    let startup = Startup::of(lines.iter().map(|line: &Line| &*line.function.name), inlines_known);
    Symbols {
        startup,
        program: ProgramLines::of(&lines, sources),
        has_own_line: drafts.iter().any(|draft| draft.line != 0 && !sources.is_library(&draft.file)),
        lines: lines.into(),
        classes: classes.into(),
        offset: symbol.map_or(0, |s| address + 1 - s.start),
    }
}

/// Chooses the best name available. `symbol` is the linker's name of the function that contains the code, for the
/// outermost line only.
fn settle(draft: &Draft, symbol: Option<&str>, home: Option<&Home<'_>>, sources: &Sources<'_>) -> Name {
    match (draft.name.as_deref(), symbol) {
        (Some(name), _) if names::is_mangled(name) => names::demangle(name),
        // This name has the full path; the debug information may have only the last segment, as with line tables only.
        (_, Some(symbol)) => names::demangle(symbol),
        (Some(name), None) if draft.is_rust => names::qualify(name, Some(&draft.file), home, sources),
        (Some(name), None) => names::demangle(name),
        // Code with lines but without any name, such as assembly. A reader needs some function for the lines.
        (None, None) => names::qualify("??", Some(&draft.file), home, sources),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_name_wins() {
        let draft = |name: Option<&str>, is_rust| Draft {
            name: name.map(str::to_owned),
            is_rust,
            file: "/home/u/app/src/store.rs".to_owned(),
            line: 1,
            column: 1,
        };
        let mangled = "_RNvNtCs1234_3app5store3put";
        let sources = Sources::new(&Roots::default);
        for (draft, symbol, full) in [
            (draft(Some(mangled), true), None, "app::store::put"),
            (draft(Some("put"), true), Some(mangled), "app::store::put"),
            (draft(Some("put"), true), None, "app::store::put"),
            (draft(Some("put"), false), None, "put"),
            (draft(None, false), Some("memcpy"), "memcpy"),
            (draft(None, false), None, "app::store::??"),
        ] {
            assert_eq!(settle(&draft, symbol, None, &sources).full, full);
        }
    }
}
