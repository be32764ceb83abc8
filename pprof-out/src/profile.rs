//! A profile: what it is called, how many stacks it holds, how it is filled and written.

use std::collections::HashMap;
use std::fmt;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;

use rtprof_profiler::fork_safe::ForkMutex;
use rtprof_profiler::{MAX_STACK, init, mem, sampling, stack};

use crate::contention::{self, Contention, ContentionRecords};
use crate::count_profile::{self, CountProfile, Place};
use crate::error::ProfileError;
use crate::heap::{self, HeapRecords};
use crate::registry::registry;
use crate::snapshot::Snapshot;
use crate::thread_create;

/// A named collection of stacks: one of the built-in profiles, or one that the program fills itself to
/// follow things that are opened and must be closed (`pprof.Profile` in Go).
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
pub struct Profile(Arc<Kind>);

enum Kind {
    Heap(HeapView),
    Contention(Contention),
    ThreadCreate,
    Custom(Custom),
    Absent { name: &'static str, comment: &'static str },
}

/// Two views of the same records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapView {
    Heap,
    Allocs,
}

struct Custom {
    name: String,
    places: ForkMutex<HashMap<usize, Place>>,
}

impl HeapView {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Allocs => "allocs",
        }
    }

    pub(crate) fn default_sample_type(self) -> &'static str {
        match self {
            Self::Heap => "inuse_space",
            Self::Allocs => "alloc_space",
        }
    }
}

/// The profiles that the process has from the beginning.
pub(crate) fn built_in() -> impl Iterator<Item = Profile> {
    [
        Kind::Heap(HeapView::Allocs),
        Kind::Contention(Contention::Block),
        Kind::Heap(HeapView::Heap),
        Kind::Contention(Contention::Mutex),
        Kind::ThreadCreate,
    ]
    .into_iter()
    .map(|kind| Profile(Arc::new(kind)))
}

/// Writes the heap profile as gzipped profile.proto; short for `lookup("heap")` and
/// [`write_to(w, 0)`](Profile::write_to) (`pprof.WriteHeapProfile`).
///
/// # Errors
/// Those of the writer.
pub fn write_heap_profile(w: impl Write) -> io::Result<()> {
    let snapshot = {
        let _workspace = sampling::workspace();
        Snapshot::of_heap(HeapView::Heap, HeapRecords::take())
    };
    snapshot.write_to(w, 0)
}

impl Profile {
    /// Makes an empty profile of the program's own (`pprof.NewProfile`). By custom the name begins with the
    /// program or package, as in `app/open_files`.
    ///
    /// # Errors
    /// The name is empty, holds white space or control characters, or is taken.
    pub fn new(name: &str) -> Result<Self, ProfileError> {
        if name.is_empty() {
            return Err(ProfileError::EmptyName);
        }
        // The text form of the profile has it in a line of words.
        if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(ProfileError::InvalidName(name.to_owned()));
        }
        let mut profiles = registry().ok_or(ProfileError::LostInFork)?;
        if profiles.contains_key(name) {
            return Err(ProfileError::NameTaken(name.to_owned()));
        }
        let profile = Self(Arc::new(Kind::Custom(Custom {
            name: name.to_owned(),
            places: ForkMutex::new(HashMap::new()),
        })));
        profiles.insert(name.to_owned(), profile.clone());
        Ok(profile)
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        match &*self.0 {
            Kind::Heap(view) => view.name(),
            Kind::Contention(kind) => kind.name(),
            Kind::ThreadCreate => thread_create::NAME,
            Kind::Custom(custom) => &custom.name,
            Kind::Absent { name, .. } => name,
        }
    }

    /// How many stacks the profile holds now (`Profile.Count`): of a program's own profile the things that were
    /// added and not removed, of `heap`, `allocs`, `block` and `mutex` the distinct records, of `threadcreate` the
    /// threads that were created.
    pub fn count(&self) -> usize {
        let _workspace = sampling::workspace();
        match &*self.0 {
            Kind::Heap(_) => mem::snapshot().len(),
            Kind::Contention(kind) => kind.count(),
            Kind::ThreadCreate => thread_create::count(),
            Kind::Custom(custom) => custom.places.lock().map_or(0, |places| places.len()),
            Kind::Absent { .. } => 0,
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
        let Kind::Custom(custom) = &*self.0 else {
            return Err(ProfileError::BuiltIn(self.name().to_owned()));
        };
        // A program may have profiles of its own without our allocator, which opens the profiler otherwise.
        init::open();
        let mut one = [0; MAX_STACK];
        let mut two = [0; MAX_STACK];
        let depth = stack::capture(black_box(&mut one));
        let depth_two = stack::capture(black_box(&mut two));
        let stack = caller_stack(&one[..depth], &two[..depth_two]);
        let place = Place { stack: stack.into(), skip };

        let mut places = custom.places.lock().ok_or(ProfileError::LostInFork)?;
        if places.contains_key(&key) {
            return Err(ProfileError::DuplicateKey { profile: custom.name.clone(), key });
        }
        places.insert(key, place);
        Ok(())
    }

    /// Removes what was added under `key`; does nothing if there is no such thing (`Profile.Remove`).
    pub fn remove(&self, key: usize) {
        if let Kind::Custom(custom) = &*self.0 {
            // Freed after the lock is released.
            let _removed = custom.places.lock().and_then(|mut places| places.remove(&key));
        }
    }

    /// Writes the profile as it is now (`Profile.WriteTo`).
    ///
    /// With `debug` 0 it writes gzipped profile.proto, with 1 or more a text with functions and lines for
    /// people. `go tool pprof` reads both. What the export itself allocates is not sampled, what `w` allocates
    /// is. The writer gets the profile in pieces of about 64 KiB and is flushed at the end. `&mut w` is a writer too, for a
    /// caller that goes on with it.
    ///
    /// # Errors
    /// Those of the writer. What was written until then is not a whole profile; nothing else is affected, and
    /// the next call starts afresh.
    pub fn write_to(&self, w: impl Write, debug: u32) -> io::Result<()> {
        self.snapshot()?.write_to(w, debug)
    }

    /// The profile's records as they are now, to be written in any form, at any time; and what a later snapshot is
    /// compared with. It keeps about 100 bytes a record, which are not sampled.
    ///
    /// # Errors
    /// A forked child whose parent was changing this profile of the program's own at the instant of the fork has
    /// lost it.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let _workspace = sampling::workspace();
        Ok(match &*self.0 {
            Kind::Heap(view) => Snapshot::of_heap(*view, HeapRecords::take()),
            Kind::Contention(kind) => Snapshot::of_contention(ContentionRecords::take(*kind)),
            Kind::ThreadCreate => Snapshot::of_counts(thread_create::take()),
            Kind::Custom(custom) => {
                let places = count_profile::counted(custom.places()?);
                Snapshot::of_counts(CountProfile::of_places(custom.name.clone(), places))
            }
            Kind::Absent { name, comment } => Snapshot::of_counts(CountProfile {
                comments: vec![(*comment).to_owned()],
                ..CountProfile::of_places((*name).to_owned(), Vec::new())
            }),
        })
    }

    /// Name and unit of each value, in order; for instance `("inuse_space", "bytes")`.
    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        match &*self.0 {
            Kind::Heap(_) => heap::SAMPLE_TYPES.to_vec(),
            Kind::Contention(_) => contention::SAMPLE_TYPES.to_vec(),
            _ => vec![(self.name(), "count")],
        }
    }

    /// The place among [`sample_types`](Self::sample_types) of the one to show first: what `go tool pprof` shows.
    pub fn default_sample_type(&self) -> usize {
        match &*self.0 {
            Kind::Heap(view) => heap::place_of(view.default_sample_type()),
            // Without a wish of the profile's pprof shows the last one.
            _ => self.sample_types().len() - 1,
        }
    }

    /// Whether the profile is one that is there from the beginning, not one of the program's own.
    pub fn is_built_in(&self) -> bool {
        !matches!(&*self.0, Kind::Custom(_))
    }

    /// A profile that is always empty and says why: what a server answers whose clients ask for a profile that is
    /// not part of this build.
    #[doc(hidden)]
    pub fn absent(name: &'static str, comment: &'static str) -> Self {
        Self(Arc::new(Kind::Absent { name, comment }))
    }
}

impl Custom {
    /// A copy, so that the lock is not held while the writer runs: it may add things itself.
    fn places(&self) -> io::Result<Vec<Place>> {
        let places = self.places.lock().ok_or_else(|| io::Error::other(ProfileError::LostInFork))?;
        Ok(places.values().cloned().collect())
    }
}

/// The part of two stacks that begins at the caller of the function that captured both.
///
/// How many frames the capture itself left at the leaf depends on what was inlined. But the two captures were
/// called from two places of one function, so its frame is the rootmost one in which they differ.
fn caller_stack<'a>(one: &'a [usize], two: &[usize]) -> &'a [usize] {
    let shared = one.iter().rev().zip(two.iter().rev()).take_while(|(a, b)| a == b).count();
    match one.len() - shared {
        // The optimizer made one call of two. Better too many frames than none.
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
mod tests {
    use super::*;
    use crate::lookup;

    #[test]
    fn the_caller_begins_where_two_captures_agree() {
        assert_eq!(caller_stack(&[1, 2, 3, 9, 8], &[1, 2, 4, 9, 8]), [9, 8]);
        assert_eq!(caller_stack(&[3, 9, 8], &[4, 9, 8]), [9, 8]);
        assert_eq!(caller_stack(&[9, 8], &[9, 8]), [9, 8]);
        assert_eq!(caller_stack(&[3], &[4]), [3]);
    }

    #[inline(never)]
    fn opener(profile: &Profile, key: usize) {
        std::hint::black_box(profile.add(key, 0)).unwrap();
    }

    #[inline(never)]
    fn outer_opener(profile: &Profile, key: usize) {
        std::hint::black_box(profile.add(key, 1)).unwrap();
    }

    #[inline(never)]
    fn skips_all(profile: &Profile, key: usize) {
        std::hint::black_box(profile.add(key, usize::MAX)).unwrap();
    }

    #[test]
    fn a_stack_begins_where_the_caller_says() {
        let profile = Profile::new("test/places").unwrap();
        // The optimizer must not know how often: it would make three places of the one.
        for key in 0..black_box(3) {
            opener(&profile, key);
        }
        outer_opener(&profile, 3);
        let mut text = Vec::new();
        profile.write_to(&mut text as &mut dyn Write, 1).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut paragraphs = text.split("\n\n");
        let leaf = |paragraph: &str| {
            let line = paragraph.lines().find(|line| line.starts_with('#')).unwrap();
            line.split('\t').nth(2).unwrap().split('+').next().unwrap().to_owned()
        };
        let first = paragraphs.next().unwrap();
        assert!(first.starts_with("test/places profile: total 4\n3 @ 0x"), "{first}");
        assert_eq!(leaf(first), "rtprof_pprof_out::profile::tests::opener");
        let second = paragraphs.next().unwrap();
        assert_eq!(leaf(second), "rtprof_pprof_out::profile::tests::a_stack_begins_where_the_caller_says");

        // Nothing is left but the outermost function; still there is a stack.
        for key in 0..4 {
            profile.remove(key);
        }
        skips_all(&profile, 9);
        let mut text = Vec::new();
        profile.write_to(&mut text, 1).unwrap();
        let text = String::from_utf8(text).unwrap();
        let first = text.split("\n\n").next().unwrap();
        assert_eq!(first.lines().filter(|line| line.starts_with('#')).count(), 1, "{first}");
    }

    /// Adds a thing at each write.
    struct Adding<'a>(&'a Profile, usize);

    impl Write for Adding<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            self.0.add(self.1, 0).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_may_use_the_profile_it_gets() {
        let profile = Profile::new("test/adding").unwrap();
        for debug in [0, 1] {
            let before = profile.count();
            profile.write_to(&mut Adding(&profile, before), debug).unwrap();
            assert!(profile.count() > before);
        }
    }

    #[test]
    fn misuse_is_named() {
        let heap = lookup("heap").unwrap();
        let error = heap.add(1, 0).unwrap_err();
        assert_eq!(error, ProfileError::BuiltIn("heap".into()));
        assert!(error.to_string().contains("Profile::new"));
        heap.remove(1);

        assert_eq!(Profile::new("").unwrap_err(), ProfileError::EmptyName);
        assert!(matches!(Profile::new("a b"), Err(ProfileError::InvalidName(_))));
        assert!(matches!(Profile::new("allocs"), Err(ProfileError::NameTaken(_))));

        let own = Profile::new("test/misuse").unwrap();
        let taken = Profile::new("test/misuse").unwrap_err();
        assert!(taken.to_string().contains("lookup(\"test/misuse\")"), "{taken}");
        own.add(1, 0).unwrap();
        let twice = own.add(1, 0).unwrap_err();
        assert!(twice.to_string().contains("0x1"), "{twice}");
        own.remove(2);
        assert_eq!(own.count(), 1);
        own.remove(1);
        own.add(1, 0).unwrap();
        assert_eq!(lookup("test/misuse").unwrap().count(), 1);
    }
}
