//! From addresses to functions, files and lines.

use std::sync::Arc;

use rtprof_profiler::modules::Module;

use crate::hook_names;
use crate::names::{self, Home, Name};
use crate::object_file::{ObjectFile, Store};
use crate::owners::Owners;
use crate::prune::classify;
use crate::symbol_cache::{self, FileState, Line, ModuleKey, SymbolCache, Symbols};

/// Who makes functions and lines of the addresses of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbolization {
    /// The program that writes it.
    #[default]
    Full,
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
}

/// A return address, and the module that it belongs to.
pub(crate) type Owned = (usize, Option<usize>);

/// An address that is not in the cache.
struct Missing {
    /// Its place among those that were asked for.
    at: usize,
    module: usize,
    /// Its place in the module's file.
    place: u64,
}

impl Symbolizer {
    /// For the modules as they are now.
    pub(crate) fn new(symbolization: Symbolization) -> Self {
        let owners = Owners::read();
        let keys = vec![None; owners.modules().len()];
        Self { owners, keys, cache: symbol_cache::global(), unknown: Arc::default(), symbolization }
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
                Some(module) if self.symbolization == Symbolization::Full => {
                    let (key, place) = self.place(module, address);
                    let known = self.cache.get(key, place);
                    if known.is_none() {
                        missing.push(Missing { at, module, place });
                    }
                    known
                }
                _ => None,
            };
            resolved.push(known.unwrap_or_else(|| self.unknown.clone()));
        }
        missing.sort_by_key(|missing| (missing.module, missing.place));
        for of_module in missing.chunk_by(|a, b| a.module == b.module) {
            self.look_up(of_module, &mut resolved);
        }
        resolved
    }

    /// An address as the cache knows it.
    fn place(&mut self, module: usize, address: usize) -> (u32, u64) {
        let of = self.modules()[module];
        let key = *self.keys[module].get_or_insert_with(|| self.cache.module(&key_of(of)));
        (key, address.wrapping_sub(of.bias) as u64)
    }

    /// Looks addresses of one module up in its file, and remembers what is found. Where the file cannot be read, or is
    /// written to meanwhile, they stay unknown, and are not remembered: it may be there next time.
    fn look_up(&self, missing: &[Missing], resolved: &mut [Arc<Symbols>]) {
        let module = missing[0].module;
        let Some(key) = self.keys[module] else { return };
        let mut store = Store::default();
        let Some((state, found)) = read(self.modules()[module], missing, &store, self.cache) else {
            return;
        };
        if !store.is_unchanged() {
            return;
        }
        self.cache.set_file(key, state);
        for (missing, symbols) in missing.iter().zip(&found) {
            resolved[missing.at] = self.cache.insert(key, missing.place, symbols);
        }
    }
}

/// What the file of `module` says of each address.
fn read(
    module: &Module,
    missing: &[Missing],
    store: &Store,
    cache: &SymbolCache,
) -> Option<(FileState, Vec<Symbols>)> {
    let file = ObjectFile::open(module, store)?;
    let found = missing.iter().map(|missing| look_up(&file, missing.place, cache)).collect();
    Some((file.state(), found))
}

fn key_of(module: &Module) -> ModuleKey {
    if module.build_id.is_empty() {
        ModuleKey::Path(module.path.clone(), module.file, module.bias)
    } else {
        ModuleKey::BuildId(module.build_id.clone())
    }
}

/// A line before its name is settled.
struct Draft {
    name: Option<String>,
    is_rust: bool,
    file: String,
    line: u32,
    column: u32,
}

fn look_up(file: &ObjectFile<'_>, address: u64, cache: &SymbolCache) -> Symbols {
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
    // Code that the compiler merged has line 0, but its function is known, and so are those inlined there.
    let inlines_known = drafts.iter().any(|draft| draft.line != 0 || draft.name.is_some());
    let full_name = symbol.as_ref().map(|s| names::demangle(&s.name).full);
    let last_file = drafts.last().map(|draft| draft.file.clone()).unwrap_or_default();
    let home = full_name.as_deref().and_then(|name| Home::of(name, &last_file));
    let mut left_out = None;
    let mut classes = Vec::with_capacity(drafts.len());
    let mut lines = Vec::with_capacity(drafts.len());
    for (at, draft) in drafts.iter().enumerate() {
        let symbol = symbol.as_ref().filter(|_| at == outermost).map(|s| &*s.name);
        let name = settle(draft, symbol, home.as_ref());
        let short = names::short(&name.full);
        let function = cache.function(&short, &name.system, &draft.file);
        // Without inlined functions it may have the program's closure in it.
        if inlines_known && hook_names::is_thread_start(&short) {
            left_out = Some(function);
            continue;
        }
        classes.push(classify(&name.full, &draft.file, inlines_known));
        lines.push(Line { function, line: draft.line, column: draft.column });
    }
    Symbols {
        left_out,
        lines: lines.into(),
        classes: classes.into(),
        offset: symbol.map_or(0, |s| address + 1 - s.start),
    }
}

/// Chooses the best name there is. `symbol` is the linker's name of the function that has the code, for the
/// outermost line only.
fn settle(draft: &Draft, symbol: Option<&str>, home: Option<&Home<'_>>) -> Name {
    match (draft.name.as_deref(), symbol) {
        (Some(name), _) if names::is_mangled(name) => names::demangle(name),
        // Full of path where the debug information has but the last segment, as with line tables only.
        (_, Some(symbol)) => names::demangle(symbol),
        (Some(name), None) if draft.is_rust => names::qualify(name, Some(&draft.file), home),
        (Some(name), None) => names::demangle(name),
        // Code with lines and no name at all, such as assembly. A reader needs some function to hold them.
        (None, None) => names::qualify("??", Some(&draft.file), home),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtprof_profiler::{MAX_STACK, stack};

    #[inline(never)]
    fn capture_here() -> Vec<usize> {
        rtprof_profiler::init::open();
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
        let here = "rtprof_pprof_out::symbolizer::tests::capture_here";
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
    fn best_name_wins() {
        let draft = |name: Option<&str>, is_rust| Draft {
            name: name.map(str::to_owned),
            is_rust,
            file: "/home/u/app/src/store.rs".to_owned(),
            line: 1,
            column: 1,
        };
        let mangled = "_RNvNtCs1234_3app5store3put";
        for (draft, symbol, full) in [
            (draft(Some(mangled), true), None, "app::store::put"),
            (draft(Some("put"), true), Some(mangled), "app::store::put"),
            (draft(Some("put"), true), None, "app::store::put"),
            (draft(Some("put"), false), None, "put"),
            (draft(None, false), Some("memcpy"), "memcpy"),
            (draft(None, false), None, "app::store::??"),
        ] {
            assert_eq!(settle(&draft, symbol, None).full, full);
        }
    }
}
