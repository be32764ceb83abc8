//! The programs and libraries in this process: their code, paths and unwind tables.
//!
//! The loader's list may only be read under the loader's lock, which a hook must not take (another thread may hold it
//! and allocate). So it is read outside the hooks: at start, and again by [`refresh`] at each snapshot. A module loaded
//! and unloaded between two readings is not known, but its existence is: the loader counts unloaded modules.
//! [`History`] says which module owned an address when a stack was captured.
//!
//! Locks: `REFRESH` (a [`ForkLock`]) is held while the list is replaced, and inside it `loader::ASKING` while the
//! loader's list is read; never in a hook.

mod history;
mod module;
mod span;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::collections::{HashMap, HashSet};

use crate::hook;
use crate::lock::fork_lock::ForkLock;
use crate::memory::atomic_ref::AtomicRef;
use history::Lifetime;
use module::{Generation, Listing, identity};

pub use history::{ForeignModule, History, Owner};
pub use module::Module;
pub(crate) use span::Stamp;
pub use span::{CaptureSpan, ClockTime};

/// The modules that are loaded, and those that were. Replaced as a whole.
#[derive(Clone, Debug, Default)]
struct ModuleSet {
    /// Loaded modules first, then unloaded ones, the last unloaded first.
    lifetimes: Vec<Lifetime>,
    generation: Generation,
    /// The last reading before which a module was unloaded that is unknown, or forgotten.
    doubtful: u64,
    /// Whether modules of the first reading stay loaded: the program, and the libraries that it was linked with.
    first_stay: bool,
}

static REFRESH: ForkLock = ForkLock::new();
/// Callback of each reading, for the loaded modules if they have changed. Called with `REFRESH` held.
static ON_READING: AtomicRef<OnReading> = AtomicRef::none();
/// `None` stands for modules that have not changed.
pub(crate) type OnReading = fn(Option<&[&'static Module]>);
/// Whether the first reading is made by a constructor.
static AT_START: AtomicBool = AtomicBool::new(false);
static CURRENT: AtomicPtr<ModuleSet> = AtomicPtr::new(core::ptr::null_mut());
/// The number of threads that are reading a set. A replaced set is freed if there is no reader.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// The number of unloaded modules that are remembered: stacks may still contain their addresses. Without a limit, a
/// program that loads and unloads plugins for ever would grow with them.
const REMEMBERED: usize = 256;

/// Reads the set as of the last refresh; empty before the first. Lock-free: safe to call in a hook.
fn read<T>(f: impl FnOnce(&ModuleSet) -> T) -> T {
    static EMPTY: ModuleSet = ModuleSet {
        lifetimes: Vec::new(),
        generation: Generation { added: 0, removed: 0 },
        doubtful: 0,
        first_stay: false,
    };
    // Sequentially consistent, with the load below: if a refresh has stored a new set and then sees no reader, every
    // later reader loads the new set.
    READERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a set is freed only after it was replaced and no reader was left.
    let result = f(unsafe { CURRENT.load(Ordering::SeqCst).as_ref() }.unwrap_or(&EMPTY));
    READERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Returns the loaded module that contains a run-time address. Lock-free.
pub fn find(address: usize) -> Option<&'static Module> {
    read(|set| set.loaded().find(|module| module.contains(address)))
}

/// Returns the address of a function that a module exports, where the loader finds it first: of one that is chosen for the
/// processor, the chosen one. Takes the loader's lock. Must not be called in a hook.
pub fn exported(name: &core::ffi::CStr) -> Option<usize> {
    imp::exported(name)
}

/// Returns a module that is loaded with this bias. Lock-free.
pub(crate) fn loaded_at(bias: usize) -> Option<&'static Module> {
    read(|set| set.loaded().find(|module| module.bias == bias))
}

/// Notes that the first reading follows in a constructor, unless there was a reading already.
pub(crate) fn expect_first_reading() {
    AT_START.store(true, Ordering::Relaxed);
}

/// Reads the list of loaded libraries again. Every export does so; a program that loads and unloads libraries (plugins,
/// hot reloading) may call this after each `dlopen` and after each `dlclose`, for two reasons:
///
/// - Where frame pointers are missing, stacks are walked through a library only once it is known.
/// - When a library takes the place of another one, the same address stands for two functions. A stack that was
///   captured between the reading before the change and the reading after it may belong to either: it is shown by
///   address, and a comment of the profile names both libraries. With a reading right before and right after each
///   change there is no such stack.
///
/// A call takes the loader's lock and half a microsecond, or 70 microseconds in a program with few libraries if the
/// list has changed. The unwind tables of each library are copied when it is seen for the first time, and kept until
/// the process ends: a program that loads one build of a plugin after another grows by the tables of each. The kernel
/// may have to read them from the library's file. Must not be called in signal handlers, nor in constructors and
/// destructors of libraries. Go has no equivalent: its plugins are never unloaded.
//
// A forked child whose parent held the loader's lock in this function at the instant of the fork keeps the modules that
// it has. (If another thread of the parent held the lock outside this function, which cannot be detected, the child
// waits for ever.)
pub fn refresh() {
    refresh_unless(true);
}

/// Reads the list, and calls `on_reading` with the loaded modules, now and whenever the list was read.
pub(crate) fn on_reading(on_reading: &'static OnReading) {
    ON_READING.set(Some(on_reading));
    refresh_unless(false);
}

/// Reads the list; if `is_told`, only when it has changed.
fn refresh_unless(is_told: bool) {
    let _held = REFRESH.lock();
    let reading = span::begin_reading();
    let Some(generation) = imp::generation() else { return };
    let is_unchanged = is_told && read(|set| set.generation == generation && !set.lifetimes.is_empty());
    // The list is kept beyond the work for which it is read.
    let is_read = hook::outside_workspace(|| {
        let _untracked = hook::untracked();
        if !is_unchanged {
            return read_again(reading);
        }
        if let Some(on_reading) = ON_READING.get() {
            on_reading(None);
        }
        true
    });
    if is_read {
        span::end_reading(reading);
    }
}

/// Replaces the set. Returns `false` if the loader's list cannot be read.
fn read_again(reading: u64) -> bool {
    let mut before = read(ModuleSet::clone);
    let known = history::distinct(&before.lifetimes);
    let Some(listing) = imp::list(&known) else { return false };
    // Each step takes time in proportion to the number of modules: a program may have thousands.
    let listed = listing.identities();
    for module in known {
        module.loaded.store(listed.contains(&identity(module)), Ordering::Relaxed);
    }
    for module in &listing.modules {
        module.loaded.store(true, Ordering::Relaxed);
    }
    if before.lifetimes.is_empty() {
        // As part of the program, a constructor runs before any unloadable library was loaded. In a shared library it
        // may run after the host has loaded plugins.
        let here = read_again as fn(u64) -> bool as usize;
        let is_program = |module: &&'static Module| module.is_main_executable && module.contains(here);
        before.first_stay = AT_START.load(Ordering::Relaxed) && listing.modules.iter().any(is_program);
    }
    if let Some(on_reading) = ON_READING.get() {
        on_reading(Some(&listing.modules));
    }
    let set = Box::into_raw(Box::new(before.followed_by(&listing, reading)));
    let old = CURRENT.swap(set, Ordering::SeqCst);
    if !old.is_null() && READERS.load(Ordering::SeqCst) == 0 {
        // SAFETY: the set was replaced, and no thread reads it: a reader that has registered since reads the new set.
        // (With a reader present, or one left over from the parent in a forked child, the old set is leaked.)
        drop(unsafe { Box::from_raw(old) });
    }
    true
}

impl ModuleSet {
    fn loaded(&self) -> impl Iterator<Item = &'static Module> {
        self.lifetimes.iter().filter(|lifetime| lifetime.last.is_none()).map(|lifetime| lifetime.module)
    }

    /// Returns the set after a reading.
    fn followed_by(&self, listing: &Listing, reading: u64) -> Self {
        let (open, mut closed): (Vec<Lifetime>, Vec<Lifetime>) =
            self.lifetimes.iter().partition(|lifetime| lifetime.last.is_none());
        let listed = listing.identities();
        let is_listed = |lifetime: &Lifetime| listed.contains(&identity(lifetime.module));
        let (staying, gone): (Vec<Lifetime>, Vec<Lifetime>) = open.into_iter().partition(is_listed);

        let removed = listing.generation.removed.wrapping_sub(self.generation.removed);
        let unseen = removed.saturating_sub(bases(&gone).len() as u64);
        let reloaded = perhaps_reloaded(listing, &staying, unseen, self.first_stay);
        let is_doubtful = unseen > 0;
        for lifetime in &mut closed {
            // Its clock values overlap those of the previous reading.
            lifetime.is_doubtful_after |= is_doubtful && lifetime.last == Some(reading - 2);
        }
        let end = |lifetime: Lifetime| Lifetime {
            last: Some(reading - 1),
            is_doubtful_after: is_doubtful,
            ..lifetime
        };
        let is_reloaded = |lifetime: &Lifetime| reloaded.contains(&lifetime.module.base);

        let was_doubtful = self.doubtful > 0 && self.doubtful + 1 == reading;
        let begin = |module| Lifetime {
            module,
            first: reading,
            last: None,
            is_doubtful_before: is_doubtful || was_doubtful,
            is_doubtful_after: false,
        };
        let stays = staying.iter().filter(|lifetime| !is_reloaded(lifetime));
        let go_on: HashMap<usize, Lifetime> =
            stays.map(|lifetime| (identity(lifetime.module), *lifetime)).collect();
        let lifetime = |module| go_on.get(&identity(module)).copied().unwrap_or_else(|| begin(module));
        let mut lifetimes: Vec<Lifetime> = listing.modules.iter().copied().map(lifetime).collect();

        let ended =
            gone.iter().chain(staying.iter().filter(|lifetime| is_reloaded(lifetime))).copied().map(end);
        let mut remembered: Vec<Lifetime> = ended.chain(closed).collect();
        let forgotten = remembered.split_off(remembered.len().min(REMEMBERED));
        let last_seen: HashSet<u64> = forgotten.iter().filter_map(|lifetime| lifetime.last).collect();
        for lifetime in lifetimes.iter_mut().chain(&mut remembered) {
            // It may have taken the place of a forgotten one, within clock values that both share.
            let follows = |by| lifetime.first.checked_sub(by).is_some_and(|last| last_seen.contains(&last));
            lifetime.is_doubtful_before |= follows(1) || follows(2);
        }
        let is_doubtful = is_doubtful || forgotten.iter().any(|lifetime| lifetime.last == Some(reading - 1));
        lifetimes.extend(remembered);
        Self {
            lifetimes,
            generation: listing.generation,
            doubtful: if is_doubtful { reading } else { self.doubtful },
            first_stay: self.first_stay,
        }
    }
}

impl History {
    /// Reads the loader's list again, so that libraries loaded since the last time are known. Must not be called in a
    /// hook.
    pub fn read() -> Self {
        refresh();
        read(|set| Self::new(&set.lifetimes))
    }
}

/// Returns the bases of the programs and libraries that these segments belong to.
fn bases(lifetimes: &[Lifetime]) -> Vec<usize> {
    let mut bases: Vec<usize> = lifetimes.iter().map(|lifetime| lifetime.module.base).collect();
    bases.sort_unstable();
    bases.dedup();
    bases
}

/// Returns the bases of libraries that were listed before and are listed now, but may have been unloaded in between and
/// have given their place to another one. `unseen` is the number of libraries that were unloaded unseen.
///
/// One of the unseen ones was that other library. The loader appends to its list, so the rest are the last ones of
/// those that stayed. The program, and the libraries that it was linked with, are never unloaded.
fn perhaps_reloaded(
    listing: &Listing,
    staying: &[Lifetime],
    unseen: u64,
    first_stay: bool,
) -> HashSet<usize> {
    let stays = |lifetime: &Lifetime| lifetime.module.is_main_executable || first_stay && lifetime.first == 1;
    let may_have_gone: HashSet<usize> =
        staying.iter().filter(|s| !stays(s)).map(|s| identity(s.module)).collect();
    let candidates = listing.modules.iter().filter(|module| may_have_gone.contains(&identity(module)));
    let mut bases: Vec<usize> = candidates.map(|module| module.base).collect();
    bases.dedup();
    let most = usize::try_from(unseen.saturating_sub(1)).unwrap_or(usize::MAX);
    bases.split_off(bases.len().saturating_sub(most)).into_iter().collect()
}

#[cfg(rtprof_supported)]
mod debug_frame;
#[cfg(rtprof_supported)]
mod image;
#[cfg(rtprof_supported)]
mod loader;
#[cfg(rtprof_supported)]
mod memory;
#[cfg(rtprof_supported)]
use loader as imp;

#[cfg(not(rtprof_supported))]
mod imp {
    use super::module::{Generation, Listing, Module};

    pub(super) fn generation() -> Option<Generation> {
        None
    }

    pub(super) fn list(_before: &[&'static Module]) -> Option<Listing> {
        None
    }

    pub(super) fn exported(_name: &core::ffi::CStr) -> Option<usize> {
        None
    }
}

/// Keeps the library that contains this address from being unloaded. Must not be called in a hook.
pub(crate) fn keep_loaded(address: usize) {
    #[cfg(rtprof_supported)]
    if let Some(library) = find(address).filter(|module| !module.is_main_executable)
        && let Ok(name) = std::ffi::CString::new(library.loader_name())
    {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the library is already loaded, so the call runs no code of it; it only marks the library as
        // permanent.
        unsafe { libc::dlopen(name.as_ptr(), flags) };
    }
    #[cfg(not(rtprof_supported))]
    let _ = address;
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_the_first_module_and_holds_this_function() {
        refresh();
        let history = History::read();
        let all = history.modules();
        assert!(all[0].is_main_executable);
        let here = the_test_program_is_the_first_module_and_holds_this_function as fn() as usize;
        assert!(core::ptr::eq(find(here).unwrap(), all[0]));
        assert_eq!(all[0].path, std::env::current_exe().unwrap().to_string_lossy());
        assert!(all.iter().any(|m| m.path.contains("libc")), "{all:?}");
        assert!(all[0].unwind.frames.0.len() > 1000);
    }

    #[test]
    fn a_second_refresh_keeps_the_set() {
        refresh();
        let before = CURRENT.load(Ordering::Relaxed);
        refresh();
        assert_eq!(before, CURRENT.load(Ordering::Relaxed));
    }
}
