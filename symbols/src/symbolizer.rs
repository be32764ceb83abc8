//! From addresses to functions, files and lines.

use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_runtime::modules::Module;

use crate::owners::Owners;
use crate::search::{self, Part, Priority, Search};
use crate::symbol_cache::{self, FileState, ModuleKey, SymbolCache, Symbols};

/// Who makes functions and lines of the addresses of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbolization {
    /// The program that writes it, before it does so. Addresses that are new are looked up in debug information by
    /// another thread, and the writer waits for that. If it has waited for a file for 5 s, as on a mount that does not
    /// answer, the profile is written without the names of that file, and a comment says so.
    #[default]
    Full,
    /// As `Full`, by a thread that the program's threads go before: nice 10, on Linux.
    Background,
    /// The program, as far as it knows names already, from other profiles or because they were
    /// looked for (`Snapshot::find_names`).
    Known,
    /// Its reader: the profile has addresses and the build ids of the files that they lie in. The program spends
    /// nothing on debug information, and hides nothing at the leaf of stacks, as it knows no names; `go tool pprof`
    /// does so itself, once it has them.
    None,
}

/// Looks addresses up during one export. What it opens takes tens of megabytes for a large program, and is released
/// before it answers; the answers stay in the cache of the process.
pub(crate) struct Symbolizer {
    pub(crate) owners: Owners,
    /// The number of each module in the cache, once it was asked for.
    keys: Vec<Option<u32>>,
    cache: &'static SymbolCache,
    unknown: Arc<Symbols>,
    symbolization: Symbolization,
    /// What was asked for and is not known.
    missing: Vec<Missing>,
}

/// A return address, and the module that it belongs to.
pub(crate) type Owned = (usize, Option<usize>);

/// An address that is not in the cache.
struct Missing {
    /// Its place among those that were asked for.
    at: usize,
    module: usize,
    key: u32,
    /// Its place in the module's file.
    place: u64,
}

/// A search for names that goes on by itself. If this is dropped, a search that has begun is finished, so that later
/// profiles have the names; one that has not begun is given up.
#[must_use]
pub struct NameSearch(Arc<Search>);

impl NameSearch {
    /// Whether the search is over or goes on. A caller that waits without a limit asks this about once a second: it also
    /// replaces a thread that has waited for a file for 5 s, without which the search would not go on.
    pub fn makes_progress(&self) -> bool {
        self.0.makes_progress()
    }
}

impl Symbolizer {
    /// For the modules as they are now.
    pub(crate) fn new(symbolization: Symbolization) -> Self {
        let owners = Owners::read();
        let keys = vec![None; owners.modules().len()];
        let cache = symbol_cache::global();
        Self { owners, keys, cache, unknown: Arc::default(), symbolization, missing: Vec::new() }
    }

    pub(crate) fn modules(&self) -> &[&'static Module] {
        self.owners.modules()
    }

    /// How far the file of a module helped, for a module in which an address was looked up.
    pub(crate) fn file_state(&self, module: usize) -> FileState {
        self.keys[module].map(|key| self.cache.file(key)).unwrap_or_default()
    }

    /// The lines of each return address. All that are needed are best asked for at once, because each call opens the
    /// debug information anew for what is not in the cache.
    pub(crate) fn resolve(&mut self, wanted: &[Owned]) -> Vec<Arc<Symbols>> {
        let mut missing = Vec::new();
        let mut resolved: Vec<Arc<Symbols>> = Vec::with_capacity(wanted.len());
        for (at, &(return_address, module)) in wanted.iter().enumerate() {
            // As in `Owners::of`: the call lies before the address that it returns to.
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
            Symbolization::Full => Some(Priority::Program),
            Symbolization::Background => Some(Priority::Low),
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

    /// Begins to look up what is missing, and calls `at_end` when that is done.
    pub(crate) fn search(mut self, at_end: Box<dyn FnOnce() + Send>) -> NameSearch {
        let mut missing = std::mem::take(&mut self.missing);
        NameSearch(search::start(self.parts(&mut missing), Priority::Low, Some(at_end)))
    }

    /// What is missing in each module.
    fn parts(&self, missing: &mut [Missing]) -> Vec<Part> {
        missing.sort_unstable_by_key(|missing| (missing.module, missing.place));
        let part = |of_module: &[Missing]| Part {
            module: self.modules()[of_module[0].module],
            key: of_module[0].key,
            places: of_module.iter().map(|missing| missing.place).collect(),
        };
        // They may outlive the export.
        hook::outside_workspace(|| missing.chunk_by(|a, b| a.module == b.module).map(part).collect())
    }

    /// An address as the cache knows it.
    fn place(&mut self, module: usize, address: usize) -> (u32, u64) {
        let of = self.modules()[module];
        let key = *self.keys[module].get_or_insert_with(|| self.cache.module(&key_of(of)));
        (key, address.wrapping_sub(of.bias) as u64)
    }

    /// How many addresses have no name because their file was not read in time. One that cannot be read is not waited
    /// for.
    pub(crate) fn late(&self) -> usize {
        self.missing.iter().filter(|missing| !self.cache.file(missing.key).is_unreadable).count()
    }

    /// What a reader must know of addresses without names.
    pub(crate) fn comments(&self) -> impl Iterator<Item = String> {
        let late = Some(self.late()).filter(|late| *late > 0).map(|late| {
            format!(
                "{late} addresses have no names yet: their debug information was not read in time; names that are found \
                 meanwhile are in later profiles"
            )
        });
        self.owners.comments().chain(late)
    }
}

fn key_of(module: &Module) -> ModuleKey {
    if module.build_id.is_empty() {
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
}
