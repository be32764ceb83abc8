//! Resolves addresses to functions, files and lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_runtime::modules::Module;

use crate::file_symbols;
use crate::owners::Owners;
use crate::program::addresses_have;
pub use crate::search::Priority as SearchPriority;
use crate::search::{self, ModulePlaces, Search};
use crate::symbol_cache::{self, FileState, ModuleKey, SymbolCache, Symbols};

/// Whether and how the addresses of a profile are resolved to functions and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbolization {
    /// The program resolves them before it writes the profile. New addresses are looked up in debug information by
    /// another thread, and the writer waits for it. If that thread has waited for a file for 5 s, as on a mount that
    /// does not answer, the profile is written without the names of that file, and a comment says so.
    #[default]
    Full,
    /// Like `Full`, on a thread of lower priority than the program's threads: nice 10, on Linux.
    Background,
    /// The program uses only the names that it knows already, from other profiles or from a search
    /// (`Snapshot::find_names`).
    Known,
    /// The reader resolves them: the profile has addresses and the build ids of the files that contain them. The
    /// program spends nothing on debug information, and hides nothing at the leaf of stacks, because it knows no names;
    /// `go tool pprof` hides frames itself, once it has the names.
    None,
}

/// Looks up addresses during one export. The files it opens take tens of megabytes for a large program, and are
/// released before it returns; the results stay in the cache of the process.
pub(crate) struct Symbolizer {
    pub(crate) owners: Owners,
    /// The number of each module in the cache, once it was requested.
    keys: Vec<Option<u32>>,
    cache: &'static SymbolCache,
    unknown: Arc<Symbols>,
    symbolization: Symbolization,
    /// Requested addresses that are not known.
    missing: Vec<Missing>,
}

/// A return address, and the module that it belongs to.
pub(crate) type Owned = (usize, Option<usize>);

/// An address that is not in the cache.
struct Missing {
    /// Its index among the requested addresses.
    at: usize,
    module: usize,
    key: u32,
    /// Its place in the module's file.
    place: u64,
}

/// A search for names in the background. If this is dropped, a search that has begun is finished, so that later
/// profiles have the names; a search that has not begun is given up.
#[must_use]
pub struct NameSearch(Arc<Search>);

impl NameSearch {
    /// Whether the search is over or makes progress. A caller that waits without a limit calls this about once a
    /// second, because the call also replaces a thread that has waited for a file for 5 s; otherwise the search would
    /// not continue.
    pub fn makes_progress(&self) -> bool {
        self.0.makes_progress()
    }
}

impl Symbolizer {
    /// A symbolizer for the modules that are loaded now.
    pub(crate) fn new(symbolization: Symbolization) -> Self {
        Self::of(Owners::read(), symbolization)
    }

    pub(crate) fn of(owners: Owners, symbolization: Symbolization) -> Self {
        let keys = vec![None; owners.modules().len()];
        let cache = symbol_cache::global();
        Self { owners, keys, cache, unknown: Arc::default(), symbolization, missing: Vec::new() }
    }

    pub(crate) fn modules(&self) -> &[&'static Module] {
        self.owners.modules()
    }

    /// Returns what the file of a module provides, for a module in which an address was looked up.
    pub(crate) fn file_state(&self, module: usize) -> FileState {
        self.keys[module].map(|key| self.cache.file(key)).unwrap_or_default()
    }

    /// Returns the lines of each return address. Request all needed addresses at once, because each call opens the
    /// debug information anew for addresses that are not in the cache.
    pub(crate) fn resolve(&mut self, wanted: &[Owned]) -> Vec<Arc<Symbols>> {
        let mut missing = Vec::new();
        let mut resolved: Vec<Arc<Symbols>> = Vec::with_capacity(wanted.len());
        for (at, &(return_address, module)) in wanted.iter().enumerate() {
            // The call lies before the address to which it returns (see `Owners::of`).
            let address = return_address.wrapping_sub(1);
            let known = match module {
                Some(module) if self.symbolization != Symbolization::None => {
                    let (key, place) = self.place(module, address);
                    let known = self.cache.get(key, place);
                    if known.is_none() {
                        missing.push(Missing { at, module, key, place });
                    }
                    known
                }
                _ => None,
            };
            resolved.push(known.unwrap_or_else(|| self.unknown.clone()));
        }
        let priority = match self.symbolization {
            Symbolization::Full => Some(SearchPriority::Program),
            Symbolization::Background => Some(SearchPriority::Low),
            Symbolization::Known | Symbolization::None => None,
        };
        if let Some(priority) = priority.filter(|_| !missing.is_empty()) {
            search::start(self.parts(&mut missing), priority, None).wait();
            missing.retain(|missing| match self.cache.get(missing.key, missing.place) {
                Some(known) => {
                    resolved[missing.at] = known;
                    false
                }
                None => true,
            });
        }
        self.missing.append(&mut missing);
        resolved
    }

    /// Starts to look up the missing addresses, and calls `at_end` when that is done.
    pub(crate) fn search(mut self, priority: SearchPriority, at_end: Box<dyn FnOnce() + Send>) -> NameSearch {
        let mut missing = std::mem::take(&mut self.missing);
        NameSearch(search::start(self.parts(&mut missing), priority, Some(at_end)))
    }

    /// Groups the missing addresses by module.
    fn parts(&self, missing: &mut [Missing]) -> Vec<ModulePlaces> {
        missing.sort_unstable_by_key(|missing| (missing.module, missing.place));
        let part = |of_module: &[Missing]| ModulePlaces {
            module: self.modules()[of_module[0].module],
            key: of_module[0].key,
            places: of_module.iter().map(|missing| missing.place).collect(),
        };
        // The parts may outlive the export.
        hook::outside_workspace(|| missing.chunk_by(|a, b| a.module == b.module).map(part).collect())
    }

    /// Returns the cache key of an address.
    fn place(&mut self, module: usize, address: usize) -> (u32, u64) {
        let of = self.modules()[module];
        let key = *self.keys[module].get_or_insert_with(|| self.cache.module(&key_of(of)));
        (key, address.wrapping_sub(of.bias) as u64)
    }

    /// Returns how many addresses have no name because their file was not read in time. Addresses of unreadable files
    /// do not count.
    pub(crate) fn late(&self) -> usize {
        self.missing.iter().filter(|missing| !self.cache.file(missing.key).is_unreadable).count()
    }

    /// Returns remarks for the reader on addresses without names.
    pub(crate) fn comments(&self) -> impl Iterator<Item = String> {
        let late = Some(self.late()).filter(|late| *late > 0).map(|late| {
            format!(
                "{} no names yet: their debug information was not read in time; a later profile has the names that are found \
                 meanwhile, and with symbolize=full /debug/pprof waits for all of them",
                addresses_have(late)
            )
        });
        self.owners.comments().chain(self.unreadable()).chain(late)
    }

    /// Whether the symbols of an address of this module are not known yet.
    pub(crate) fn lacks_symbols_of(&self, module: usize) -> bool {
        self.missing.iter().any(|missing| missing.module == module)
    }

    /// Returns the module that contains rtprof: the program, or a library of a program in another language.
    pub(crate) fn own_module(&self) -> Option<usize> {
        // A return address, which is one past the call.
        self.owners.settled(file_symbols::own_address() + 1).0
    }

    /// Returns a remark for each file that cannot be read. The kernel's page (`[vdso]`) has no file.
    fn unreadable(&self) -> impl Iterator<Item = String> {
        let mut addresses = BTreeMap::new();
        for missing in &self.missing {
            let path = &*self.modules()[missing.module].path;
            if !path.starts_with('[') && self.cache.file(missing.key).is_unreadable {
                *addresses.entry(path).or_insert(0) += 1;
            }
        }
        addresses.into_iter().map(|(path, addresses)| {
            format!(
                "{} no names, because {path} cannot be read or was replaced since it was loaded",
                addresses_have(addresses)
            )
        })
    }
}

fn key_of(module: &'static Module) -> ModuleKey {
    if module.is_foreign() {
        // Modules are never freed.
        ModuleKey::Foreign(std::ptr::from_ref(module).addr())
    } else if module.build_id.is_empty() {
        ModuleKey::Path(module.path.clone(), module.first_seen, module.bias)
    } else {
        ModuleKey::BuildId(module.build_id.clone())
    }
}

#[cfg(test)]
mod tests {
    use rtprof_runtime::{MAX_STACK, stack};

    use super::*;

    #[inline(never)]
    fn capture_here() -> Vec<usize> {
        rtprof_runtime::init::open();
        let mut frames = [0; MAX_STACK];
        let depth = stack::capture(&mut frames);
        std::hint::black_box(frames[..depth].to_vec())
    }

    fn owned(symbolizer: &Symbolizer, return_addresses: &[usize]) -> Vec<Owned> {
        let owned = |&address: &usize| (address, symbolizer.owners.settled(address).0);
        return_addresses.iter().map(owned).collect()
    }

    #[test]
    fn names_this_test() {
        let mut symbolizer = Symbolizer::new(Symbolization::Full);
        let stack = capture_here();
        let mut names = Vec::new();
        let owned = owned(&symbolizer, &stack);
        for (&(_, module), symbols) in owned.iter().zip(symbolizer.resolve(&owned)) {
            for line in &symbols.lines {
                names.push(line.function.name.to_string());
                if line.function.name.ends_with("capture_here") {
                    assert!(line.function.file.ends_with("symbolizer.rs"), "{line:?}");
                    assert!(line.line > 150, "{line:?}");
                    assert!(symbols.offset > 0 && symbols.offset < 4096);
                    assert!(symbolizer.file_state(module.unwrap()).has_symbol_table);
                }
            }
        }
        let here = "rtprof_symbols::symbolizer::tests::capture_here";
        assert!(names.iter().any(|name| name == here), "{names:#?}");
        assert!(names.iter().any(|name| name.contains("names_this_test")), "{names:#?}");
    }

    #[test]
    fn an_address_in_no_module_has_nothing() {
        let mut symbolizer = Symbolizer::new(Symbolization::Full);
        let owned = owned(&symbolizer, &[0, 1, 4096, usize::MAX, &raw const *Box::new(1u8) as usize]);
        for (&(_, module), symbols) in owned.iter().zip(symbolizer.resolve(&owned)) {
            assert!(module.is_none() && symbols.lines.is_empty());
        }
    }

    #[test]
    fn the_kernels_page_is_no_missing_file() {
        let mut symbolizer = Symbolizer::new(Symbolization::Full);
        let modules = symbolizer.modules();
        // Some sandboxes have no such page.
        let Some(page) = modules.iter().position(|module| module.path == "[vdso]") else { return };
        let wanted = [(modules[page].start + 1, Some(page))];
        assert!(symbolizer.resolve(&wanted)[0].lines.is_empty());
        assert_eq!(symbolizer.comments().collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn this_test_contains_rtprof() {
        let symbolizer = Symbolizer::new(Symbolization::Full);
        let own = symbolizer.own_module().expect("the loader lists it");
        assert!(symbolizer.modules()[own].is_main_executable);
    }
}
