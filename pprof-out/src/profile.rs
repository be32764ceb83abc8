//! A profile: its name, its number of stacks, and how it is filled and written.

use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;

use rtprof_profiler::init;
use rtprof_runtime::MAX_STACK;
use rtprof_runtime::hook;
use rtprof_runtime::hook::room;
use rtprof_runtime::lock::fork_safe::ForkMutex;
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::snapshot;
use rtprof_runtime::stack;

use crate::built_in::{BuiltIn, HEAP};
use crate::counts::{self, AddSite};
use crate::error::ProfileError;
use crate::registry::registry;
use crate::snapshot::{SMALL_EXPORT, Snapshot};

/// A named collection of stacks: one of the built-in profiles, or a custom one that the program fills itself to follow
/// things that are opened and must be closed (`pprof.Profile` in Go).
///
/// Clones are handles to the same profile. A profile lives as long as the process.
///
/// ```
/// # use rtprof_pprof_out as pprof;
/// use pprof::Profile;
///
/// let files = Profile::new("app/open_files")?;
/// files.add(7, 0)?; // 7 names the thing until it is removed: a descriptor, an address
/// assert_eq!(files.count(), 1);
/// files.remove(7);
/// # Ok::<(), rtprof_pprof_out::ProfileError>(())
/// ```
#[derive(Clone)]
pub struct Profile(Arc<Definition>);

/// What a profile is: a row of the table, or what the program has added.
enum Definition {
    BuiltIn(&'static BuiltIn),
    Custom(Custom),
}

struct Custom {
    name: String,
    places: ForkMutex<HashMap<usize, AddSite>>,
}

/// Writes the heap profile as gzipped profile.proto; short for `lookup("heap")` and
/// [`write_to(w, 0)`](Profile::write_to) (`pprof.WriteHeapProfile`).
///
/// # Errors
/// Those of [`write_to`](Profile::write_to).
pub fn write_heap_profile(w: impl Write) -> io::Result<()> {
    room::check_for_work(SMALL_EXPORT)?;
    let snapshot = {
        let _workspace = hook::workspace();
        HEAP.take()
    };
    snapshot.write_to(w, 0)
}

impl Profile {
    /// Makes an empty custom profile (`pprof.NewProfile`). By custom the name begins with the program or package, as in
    /// `app/open_files`.
    ///
    /// # Errors
    /// The name is empty, holds white space or control characters, or is taken.
    pub fn new(name: &str) -> Result<Self, ProfileError> {
        if name.is_empty() {
            return Err(ProfileError::EmptyName);
        }
        // In the profile's text form the name is one of several words in a line.
        if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(ProfileError::InvalidName(name.to_owned()));
        }
        let mut profiles = registry().ok_or(ProfileError::LostInFork)?;
        if profiles.contains_key(name) {
            return Err(ProfileError::NameTaken(name.to_owned()));
        }
        let profile = Self(Arc::new(Definition::Custom(Custom {
            name: name.to_owned(),
            places: ForkMutex::new(HashMap::new()),
        })));
        profiles.insert(name.to_owned(), profile.clone());
        Ok(profile)
    }

    /// Returns the profile's name.
    pub fn name(&self) -> &str {
        match &*self.0 {
            Definition::BuiltIn(of) => of.name(),
            Definition::Custom(custom) => &custom.name,
        }
    }

    /// Returns what the profile shows, for people who see it for the first time.
    pub fn description(&self) -> &'static str {
        match &*self.0 {
            Definition::BuiltIn(of) => of.description(),
            Definition::Custom(_) => "The program's own: what was added to it and not removed.",
        }
    }

    /// Returns how many stacks the profile holds now (`Profile.Count`): for a custom profile the things that were added
    /// and not removed; for `heap`, `allocs`, `block` and `mutex` the distinct records; for `threadcreate` the threads
    /// that were created; for `goroutine` the live threads and tasks; for `goroutineleak` the tasks that wait for ever.
    pub fn count(&self) -> usize {
        let _workspace = hook::workspace();
        match &*self.0 {
            Definition::BuiltIn(of) => of.count(),
            Definition::Custom(custom) => custom.places.lock().map_or(0, |places| places.len()),
        }
    }

    /// Adds a thing under `key`, with the caller's stack (`Profile.Add`).
    ///
    /// `skip` hides that many functions from the leaf of the stack: with 0 the stack begins at the caller of
    /// `add`, with 1 at the caller's caller. Inlined functions count. The outermost function is never hidden.
    ///
    /// # Errors
    /// The key is in the profile already, or the profile is a built-in one.
    // Never inlined: see `caller_stack`.
    #[inline(never)]
    pub fn add(&self, key: usize, skip: usize) -> Result<(), ProfileError> {
        let Definition::Custom(custom) = &*self.0 else {
            return Err(ProfileError::BuiltIn(self.name().to_owned()));
        };
        // A program may have custom profiles without using our allocator, which would otherwise open the profiler.
        init::open();
        let mut one = [0; MAX_STACK];
        let mut two = [0; MAX_STACK];
        let depth = stack::capture(black_box(&mut one));
        let depth_two = stack::capture(black_box(&mut two));
        let stack = caller_stack(&one[..depth], &two[..depth_two]);
        let place = AddSite { stack: stack.into(), skip, span: CaptureSpan::now() };

        let mut places = custom.places.lock().ok_or(ProfileError::LostInFork)?;
        if places.contains_key(&key) {
            return Err(ProfileError::DuplicateKey { profile: custom.name.clone(), key });
        }
        places.insert(key, place);
        Ok(())
    }

    /// Removes the thing that was added under `key`; does nothing if there is none (`Profile.Remove`).
    pub fn remove(&self, key: usize) {
        if let Definition::Custom(custom) = &*self.0 {
            // Freed after the lock is released.
            let _removed = custom.places.lock().and_then(|mut places| places.remove(&key));
        }
    }

    /// Writes the profile as it is now (`Profile.WriteTo`).
    ///
    /// With `debug` 0 it writes gzipped profile.proto, with 1 or more a text with functions and lines for people.
    /// `go tool pprof` reads both. With 2 `goroutine` and `goroutineleak` are written in the form that a Go program
    /// prints when it panics. Allocations of the export itself are not sampled, those of `w` are. The writer receives
    /// the profile in pieces of about 64 KiB and is flushed at the end. `&mut w` is a writer too, for a caller that
    /// continues to use it.
    ///
    /// # Errors
    /// Those of the writer, and of [`snapshot`](Self::snapshot). The output written until then is not a complete profile;
    /// nothing else is affected, and the next call starts anew.
    pub fn write_to(&self, w: impl Write, debug: u32) -> io::Result<()> {
        self.snapshot()?.write_to(w, debug)
    }

    /// Takes a snapshot of the profile's records, which can be written in any form at any time, and compared with a
    /// later snapshot. It keeps about 140 bytes per record, which are not sampled.
    ///
    /// # Errors
    /// In a forked child whose parent was changing this custom profile at the instant of the fork, the profile is lost.
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space (`RLIMIT_AS`) does not leave what the
    /// snapshot, or writing it, may need.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        if self.has_dump() {
            // Before the workspace begins: the request runs the program's code, whose allocations belong to the
            // program.
            snapshot::request();
        }
        room::check_for_work(SMALL_EXPORT)?;
        let _workspace = hook::workspace();
        let snapshot = match &*self.0 {
            Definition::BuiltIn(of) => of.take(),
            Definition::Custom(custom) => counts::of_add_sites(custom.name.clone(), custom.places()?),
        };
        snapshot.check_room()?;
        Ok(snapshot)
    }

    /// Returns name and unit of each value, in order; for instance `("inuse_space", "bytes")`.
    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        match &*self.0 {
            Definition::BuiltIn(of) => of.sample_types().to_vec(),
            Definition::Custom(custom) => vec![(&custom.name, "count")],
        }
    }

    /// Returns the index in [`sample_types`](Self::sample_types) of the type that `go tool pprof` shows first.
    pub fn default_sample_type(&self) -> usize {
        match &*self.0 {
            Definition::BuiltIn(of) => of.shown_first(),
            Definition::Custom(_) => 0,
        }
    }

    /// Whether `debug` 2 writes another form than 1: each goroutine by itself.
    pub fn has_dump(&self) -> bool {
        matches!(&*self.0, Definition::BuiltIn(of) if of.has_dump())
    }

    /// Whether the profile is built in, not one that the program has made.
    pub fn is_built_in(&self) -> bool {
        !matches!(&*self.0, Definition::Custom(_))
    }
}

impl BuiltIn {
    /// Returns a handle to the profile; `None` for one that is sampled over a time.
    pub fn profile(&'static self) -> Option<Profile> {
        self.is_looked_up().then(|| Profile(Arc::new(Definition::BuiltIn(self))))
    }
}

impl Custom {
    /// Copies the places, so that the lock is not held while the writer runs: the writer may add things itself.
    fn places(&self) -> io::Result<Vec<AddSite>> {
        let places = self.places.lock().ok_or_else(|| io::Error::other(ProfileError::LostInFork))?;
        Ok(places.values().cloned().collect())
    }
}

/// Returns the part of two stacks that begins at the caller of the function that captured both.
///
/// How many frames the capture itself left at the leaf depends on inlining. But the two captures were called from two
/// places of one function, so that function's frame is the rootmost one in which they differ.
fn caller_stack<'a>(one: &'a [usize], two: &[usize]) -> &'a [usize] {
    let shared = one.iter().rev().zip(two.iter().rev()).take_while(|(a, b)| a == b).count();
    match one.len() - shared {
        // The optimizer merged the two calls. Too many frames are better than none.
        _ if shared == 0 => one,
        differ => &one[differ..],
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Profile").field(&self.name()).finish()
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
