//! A cache of the symbols of addresses, kept from one export to the next.
//!
//! Debug information is opened anew for each export and dropped afterwards, because it takes tens of megabytes; its
//! results take a few hundred bytes an address and are kept. The key of an address is its module and its place in it,
//! so that a result remains valid if the library is loaded elsewhere. Cached data is allocated outside of the export's
//! workspace; otherwise it would keep the workspace's memory from going back to the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use dashmap::DashMap;
use rtprof_runtime::hook;
use rtprof_runtime::lock::fork_safe::PerProcess;
use rustc_hash::FxBuildHasher;

use crate::program_code::ProgramLines;
use crate::prune::Class;
use crate::startup::Startup;

/// When the cache has this many addresses, it is cleared before the next search.
const CAPACITY: usize = 200_000;

/// A function as profiles name it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Demangled, without the hash.
    pub name: Arc<str>,
    /// The linker's name.
    pub system_name: Arc<str>,
    /// Empty when unknown.
    pub file: Arc<str>,
}

/// One line of an address.
#[derive(Clone, Debug)]
pub struct Line {
    /// The function, possibly an inlined one.
    pub function: Arc<Function>,
    /// 0 when unknown.
    pub line: u32,
    /// 0 when unknown.
    pub column: u32,
}

/// The symbols of an address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Innermost inlined function first; empty when nothing is known.
    pub lines: Box<[Line]>,
    /// The class of each line.
    pub(crate) classes: Box<[Class]>,
    pub(crate) startup: Startup,
    pub(crate) program: ProgramLines,
    /// Whether it has a line outside the standard library, which comes with lines in any build.
    pub(crate) has_own_line: bool,
    /// Distance of the return address from the start of the function that has the code; 0 when unknown.
    pub offset: u64,
}

/// The identity of a module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ModuleKey {
    BuildId(Vec<u8>),
    /// Without a build id: the file, when it was first seen, and its load address.
    Path(String, SystemTime, usize),
    /// Of another process, by its address: what its file has may be read from another copy than that of a module of ours.
    Foreign(usize),
}

/// What a module's file provides. Kept with the cache because an export that finds all its addresses there opens no
/// file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Whether the file has its full symbol table, not only the names that it exports.
    pub has_symbol_table: bool,
    /// Its debug information, or that of a file beside it.
    pub debug: DebugState,
    /// Whether the file was read once; otherwise the rest is not known.
    pub(crate) is_read: bool,
    /// Whether the last attempt to read the file failed.
    pub(crate) is_unreadable: bool,
}

/// The debug information of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugState {
    /// There is none.
    #[default]
    Absent,
    /// It cannot be parsed, or takes more memory than we use.
    Unreadable,
    /// There are line tables, but a file with a part of the split debug information is missing.
    WithoutUnits,
    /// There are line tables, but the file with what `dwz` found in several files is missing.
    WithoutAlternative,
    /// There are line tables, but none of rtprof's functions, and so most likely only those of the standard library.
    NotOurs,
    /// It has line tables.
    Whole,
}

impl FileState {
    /// Whether the file, or one beside it, has line tables.
    pub fn has_lines(&self) -> bool {
        !matches!(self.debug, DebugState::Absent | DebugState::Unreadable)
    }

    /// Whether inlined functions are known too.
    pub fn has_inlined_functions(&self) -> bool {
        matches!(self.debug, DebugState::NotOurs | DebugState::Whole)
    }
}

type Key = (u32, u64);

/// The parts of a map, each with a lock. dashmap's default depends on the number of cores, for which std reads files;
/// and a child that was forked during that would wait for ever for the thread that asked.
const SHARDS: usize = 16;

/// Each map has locks for its parts, so that exports that run at the same time hardly ever wait for each other.
pub(crate) struct SymbolCache {
    modules: DashMap<ModuleKey, u32>,
    /// The number of the next module.
    next_module: AtomicU32,
    files: DashMap<u32, FileState>,
    symbols: DashMap<Key, Arc<Symbols>, FxBuildHasher>,
    functions: DashMap<Arc<Function>, ()>,
    texts: DashMap<Arc<str>, ()>,
}

/// Returns the cache of the process. A forked child begins with an empty one: the parent's may be locked there by
/// threads that do not exist.
pub(crate) fn global() -> &'static SymbolCache {
    static GLOBAL: PerProcess<SymbolCache> = PerProcess::new();
    GLOBAL.get(SymbolCache::default)
}

impl Default for SymbolCache {
    fn default() -> Self {
        Self {
            modules: DashMap::with_shard_amount(SHARDS),
            next_module: AtomicU32::new(0),
            files: DashMap::with_shard_amount(SHARDS),
            symbols: DashMap::with_hasher_and_shard_amount(FxBuildHasher, SHARDS),
            functions: DashMap::with_shard_amount(SHARDS),
            texts: DashMap::with_shard_amount(SHARDS),
        }
    }
}

// What is inserted is allocated outside of the export's workspace: see the head of this file.
impl SymbolCache {
    /// Returns the number of a module.
    pub(crate) fn module(&self, key: &ModuleKey) -> u32 {
        if let Some(known) = self.modules.get(key) {
            return *known;
        }
        let next = || self.next_module.fetch_add(1, Ordering::Relaxed);
        hook::outside_workspace(|| *self.modules.entry(key.clone()).or_insert_with(next))
    }

    /// Returns what the module's file provided when it was last opened.
    pub(crate) fn file(&self, module: u32) -> FileState {
        self.files.get(&module).map(|state| *state).unwrap_or_default()
    }

    /// Notes what the module's file provides. A part of it that was missing once counts as missing for ever, because
    /// symbols that were found without it stay in the cache.
    pub(crate) fn set_file(&self, module: u32, mut state: FileState) {
        hook::outside_workspace(|| {
            let mut known = self.files.entry(module).or_default();
            let was_incomplete =
                matches!(known.debug, DebugState::WithoutUnits | DebugState::WithoutAlternative);
            if was_incomplete && state.has_lines() {
                state.debug = known.debug;
            }
            *known = state;
        });
    }

    pub(crate) fn set_unreadable(&self, module: u32) {
        hook::outside_workspace(|| self.files.entry(module).or_default().is_unreadable = true);
    }

    /// Clears the cache if it is large. Called before a search, not during one, which would lose its results.
    pub(crate) fn make_room(&self) {
        if self.symbols.len() >= CAPACITY {
            self.symbols.clear();
            self.functions.clear();
            self.texts.clear();
        }
    }

    /// Returns the symbols of the place `offset` in a module.
    pub(crate) fn get(&self, module: u32, offset: u64) -> Option<Arc<Symbols>> {
        self.symbols.get(&(module, offset)).map(|symbols| symbols.clone())
    }

    /// Stores a copy of a place's symbols.
    pub(crate) fn insert(&self, module: u32, offset: u64, symbols: &Symbols) {
        hook::outside_workspace(|| self.symbols.insert((module, offset), Arc::new(symbols.clone())));
    }

    /// Returns one shared function for equal ones.
    pub(crate) fn function(&self, name: &str, system_name: &str, file: &str) -> Arc<Function> {
        let name = self.text(name);
        let function = Function {
            system_name: if *name == *system_name { name.clone() } else { self.text(system_name) },
            name,
            file: self.text(file),
        };
        if let Some(known) = self.functions.get(&function) {
            return known.key().clone();
        }
        // Another thread may have been faster: the entry then has its function.
        hook::outside_workspace(|| self.functions.entry(Arc::new(function)).or_insert(()).key().clone())
    }

    fn text(&self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.key().clone();
        }
        hook::outside_workspace(|| self.texts.entry(Arc::from(text)).or_insert(()).key().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_functions_are_shared() {
        let cache = SymbolCache::default();
        let one = cache.function("a::b", "_R1", "a.rs");
        let two = cache.function("a::b", "_R1", "a.rs");
        assert!(Arc::ptr_eq(&one, &two));
        let other = cache.function("a::b", "_R1", "b.rs");
        assert!(Arc::ptr_eq(&one.name, &other.name));
    }

    #[test]
    fn forgets_all_when_full() {
        let cache = SymbolCache::default();
        let module = cache.module(&ModuleKey::BuildId(vec![1]));
        assert_eq!(cache.module(&ModuleKey::BuildId(vec![1])), module);
        assert_ne!(cache.module(&ModuleKey::Path("a".into(), SystemTime::UNIX_EPOCH, 1)), module);
        for offset in 0..CAPACITY as u64 {
            cache.make_room();
            cache.insert(module, offset, &Symbols::default());
        }
        assert!(cache.get(module, 0).is_some());
        cache.make_room();
        assert!(cache.get(module, 0).is_none());
    }
}
