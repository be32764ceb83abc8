//! The stacks and strings of a trace: each distinct one is stored once, under a small id.
//!
//! Both are interning tables of `profiler::stack`, with an id in each entry; a string is stored as a stack whose words
//! are its bytes. The tables are emptied when a trace is over and there is no reader, of whatever trace ([`crate::lease`]).

use core::ptr::NonNull;
use std::collections::HashSet;

use rtprof_runtime::goroutine::start;
use rtprof_runtime::goroutine::start::{MAX_TITLE, Start};
use rtprof_runtime::hook::Hook;
use rtprof_runtime::lock::fork_safe::ForkMutex;
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::primitive::{AtomicU32, Ordering};
use rtprof_runtime::stack::table::{Entry, Key, Table};
use rtprof_runtime::stack::{MAX_STACK, Stack, capture, with_room};
use rtprof_runtime::task::KeptStack;

use crate::generation::Tables;
use crate::lease::{Lease, Leases, Sole};
use crate::record::{MAX_STRING, StackId, StringId, cut};

/// Distinct stacks of a trace.
const MAX_STACKS: usize = 1 << 16;
/// Distinct strings of a trace: names of goroutines, tasks and regions, and categories of logs.
const MAX_STRINGS: usize = 1 << 16;

const WORD: usize = size_of::<usize>();
const _: () = assert!(MAX_STRING <= MAX_STACK * WORD);

/// The part of an entry's key beside the words: for a string its length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Length(usize);

impl Key for Length {
    fn seed(&self) -> u64 {
        self.0 as u64
    }
}

/// The id of an entry; 0 until it is first requested.
struct Number(AtomicU32);

impl Default for Number {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Number {
    #[inline]
    fn get(&self, last: &AtomicU32) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            0 => self.give(last),
            number => number,
        }
    }

    #[cold]
    fn give(&self, last: &AtomicU32) -> u32 {
        let next = last.fetch_add(1, Ordering::Relaxed) + 1;
        match self.0.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            Err(theirs) => theirs,
        }
    }
}

struct Interned {
    table: Table<Length, Number>,
    last: AtomicU32,
}

impl Interned {
    rtprof_runtime::const_fn! {
        const fn new(limit: usize) -> Self {
            Self { table: Table::new(limit), last: AtomicU32::new(0) }
        }
    }

    fn entry(&self, key: Length, words: &[usize]) -> Option<&Named> {
        // Preserves `errno`: the kernel may refuse memory.
        let _hook = Hook::enter();
        self.table.intern(key, words).ok()
    }
}

type Named = Entry<Length, Number>;

trait Text {
    /// Returns the bytes of a string.
    fn bytes(&self) -> &[u8];
}

impl Text for Named {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: words may be read as bytes, and the key holds the string's length, which its words cover.
        unsafe { core::slice::from_raw_parts(self.stack().as_ptr().cast::<u8>(), self.key.0) }
    }
}

const STACK_PLACES: usize = 32;
const STRING_PLACES: usize = 16;
const KEPT_PLACES: usize = 32;
const TITLE_PLACES: usize = 16;

/// A lane's scratch memory and look-up cache. The scratch memory holds a stack or a string; zeroing it in each event
/// would take as long as the event may. The cache avoids hashing a stack, which takes as long again.
pub(crate) struct LookupCache {
    words: [usize; MAX_STACK],
    /// The trace to which the entries belong.
    session: u32,
    stacks: [Option<&'static Named>; STACK_PLACES],
    strings: [Option<&'static Named>; STRING_PLACES],
    /// The ids of tasks' stacks, by the number of the kept stack; 0 where there is none.
    kept: [(usize, StackId); KEPT_PLACES],
    /// The ids of titles of goroutines without a name, by the identity of their starts.
    titles: [([usize; 2], StringId); TITLE_PLACES],
}

impl LookupCache {
    /// An empty cache, all zero as in fresh memory.
    pub(crate) const fn new() -> Self {
        Self {
            words: [0; MAX_STACK],
            session: 0,
            stacks: [None; STACK_PLACES],
            strings: [None; STRING_PLACES],
            kept: [(0, 0); KEPT_PLACES],
            titles: [([0; 2], 0); TITLE_PLACES],
        }
    }

    /// Clears the cache if it belongs to an earlier trace, whose tables are gone.
    pub(crate) fn prepare(&mut self, session: u32) {
        if self.session != session {
            self.session = session;
            self.stacks = [None; STACK_PLACES];
            self.strings = [None; STRING_PLACES];
            self.kept = [(0, 0); KEPT_PLACES];
            self.titles = [([0; 2], 0); TITLE_PLACES];
        }
    }
}

rtprof_runtime::lazy_under_loom! {
    static STACKS: Interned = Interned::new(MAX_STACKS);
}
rtprof_runtime::lazy_under_loom! {
    static STRINGS: Interned = Interned::new(MAX_STRINGS);
}
rtprof_runtime::lazy_under_loom! {
    static LEASES: Leases = Leases::new();
}

/// Makes the tables. `false` when the kernel grants no memory.
pub(crate) fn open() -> bool {
    STACKS.table.open() && STRINGS.table.open()
}

/// Empties the tables and gives their memory back. The argument shows that there is no [`View`].
///
/// # Safety
/// No thread is within an event, and nothing is recorded: lanes' caches have references to entries, which the first event of
/// the next trace forgets.
pub(crate) unsafe fn clear(_: &Sole) {
    for interned in [&STACKS, &STRINGS] {
        // SAFETY: no thread is within an event, as the caller ensures, so none uses the table or a cache. All other
        // references to entries borrow from a lease, and `Sole` exists only while there is none.
        unsafe { interned.table.clear() };
        interned.last.store(0, Ordering::Relaxed);
    }
}

/// Returns the id of the caller's stack. `None` when the table is full. Safe to call in a hook, within an event.
#[inline]
pub(crate) fn stack_here(cache: &mut LookupCache) -> Option<StackId> {
    let depth = with_room(|| capture(&mut cache.words))?;
    let frames = &cache.words[..depth];
    // The innermost frames are the tracer's own; the frames after them differ most.
    let mix = frames.iter().skip(1).take(6).fold(depth, |mix, frame| mix.rotate_left(9) ^ frame);
    let place = &mut cache.stacks[spread(mix) % STACK_PLACES];
    if let Some(known) = *place
        && is_same(known.stack(), frames)
    {
        return Some(known.record.get(&STACKS.last));
    }
    let entry = STACKS.entry(Length(0), frames)?;
    *place = Some(entry);
    Some(entry.record.get(&STACKS.last))
}

/// Compares like `==`, which calls the C library even for a few words.
#[inline]
fn is_same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[inline]
fn spread(mix: usize) -> usize {
    (mix as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 48
}

/// Returns the id of a stack. `None` when the table is full. Safe to call in a hook, within an event.
pub(crate) fn stack(frames: &[usize]) -> Option<StackId> {
    STACKS.entry(Length(0), frames).map(|entry| entry.record.get(&STACKS.last))
}

/// Returns the id of a stack that is kept for tasks. `None` when the table is full. Safe to call in a hook, within an
/// event.
#[inline]
pub(crate) fn kept_stack(kept: KeptStack, cache: &mut LookupCache) -> Option<StackId> {
    let place = &mut cache.kept[spread(kept.number()) % KEPT_PLACES];
    if place.0 == kept.number() {
        return Some(place.1);
    }
    let number = stack(kept.frames().addresses)?;
    *place = (kept.number(), number);
    Some(number)
}

/// Returns the id of the title of a goroutine that has no name, made from its start. `None` when the table is full.
/// Safe to call in a hook, within an event.
#[inline]
pub(crate) fn title(start: Start, cache: &mut LookupCache) -> Option<StringId> {
    let identity = start.identity();
    let at = spread(identity[0] ^ identity[1].rotate_left(9)) % TITLE_PLACES;
    if cache.titles[at].0 == identity {
        return Some(cache.titles[at].1);
    }
    let number = string(start::title("", Some(start), &mut [0; MAX_TITLE]), cache)?;
    cache.titles[at] = (identity, number);
    Some(number)
}

/// Returns the id of a string, cut to [`MAX_STRING`] bytes. `None` when the table is full. Safe to call in a hook,
/// within an event.
#[inline]
pub(crate) fn string(text: &str, cache: &mut LookupCache) -> Option<StringId> {
    if text.is_empty() {
        return Some(0);
    }
    let bytes = cut(text).as_bytes();
    // Most names are constants of the program, each at a fixed address.
    let at = spread(text.as_ptr().addr() ^ bytes.len()) % STRING_PLACES;
    if let Some(known) = cache.strings[at]
        && known.bytes() == bytes
    {
        return Some(known.record.get(&STRINGS.last));
    }
    let entry = intern_bytes(bytes, &mut cache.words)?;
    cache.strings[at] = Some(entry);
    Some(entry.record.get(&STRINGS.last))
}

fn intern_bytes(bytes: &[u8], words: &mut [usize; MAX_STACK]) -> Option<&'static Named> {
    let words = &mut words[..bytes.len().div_ceil(WORD)];
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter_mut().zip(whole) {
        *word = usize::from_ne_bytes(*chunk);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()] = usize::from_ne_bytes(last);
    }
    STRINGS.entry(Length(bytes.len()), words)
}

/// The tables, for encoders that resolve ids, on any thread. Must not be used in a hook. The default has no entries.
pub struct View {
    /// Without it the view has no entries.
    lease: Option<Lease>,
    stacks: ForkMutex<Index>,
    strings: ForkMutex<Index>,
}

impl Default for View {
    fn default() -> Self {
        let index = || ForkMutex::new(Index::default());
        Self { lease: None, stacks: index(), strings: index() }
    }
}

/// The entries of a table by their ids.
#[derive(Default)]
struct Index {
    by_number: Vec<Option<Place>>,
    /// The number of entries of the table that were looked at, and those without an id at the time.
    seen: usize,
    nameless: HashSet<Place>,
}

/// Where an entry is. It is read by means of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place(NonNull<Named>);

// SAFETY: an entry may be read by any thread.
unsafe impl Send for Place {}

impl Place {
    /// Returns the entry.
    ///
    /// # Safety
    /// The place was found under this lease.
    unsafe fn entry(self, _: &Lease) -> &Named {
        // SAFETY: the tables are not emptied while the lease exists, and the entry was there when it existed.
        unsafe { self.0.as_ref() }
    }
}

impl Index {
    /// Looks at the new entries of the table. All calls have the same lease.
    fn refresh(&mut self, interned: &'static Interned, lease: &Lease) {
        for place in core::mem::take(&mut self.nameless) {
            // SAFETY: an earlier call has found it.
            self.note(unsafe { place.entry(lease) });
        }
        let all: Vec<_> = interned.table.iter().collect();
        // The newest entries come first.
        for entry in &all[..all.len() - self.seen] {
            self.note(entry);
        }
        self.seen = all.len();
    }

    fn note(&mut self, entry: &Named) {
        let (number, place) = (entry.record.0.load(Ordering::Relaxed) as usize, Place(NonNull::from(entry)));
        if number == 0 {
            self.nameless.insert(place);
            return;
        }
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        self.by_number[number] = Some(place);
    }
}

impl View {
    /// Returns a view that has indexed nothing yet. `None` while the tables are being emptied.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { lease: Some(LEASES.lease()?), ..Self::default() })
    }

    /// Forgets all entries. Returns the right to empty the tables if there is no other view.
    pub(crate) fn end(&mut self) -> Option<Sole> {
        let lease = self.lease.take()?;
        for index in [&self.stacks, &self.strings] {
            if let Some(mut index) = index.lock() {
                *index = Index::default();
            }
        }
        lease.end()
    }

    /// Indexes all entries to which past records refer.
    pub(crate) fn refresh(&self) {
        let Some(lease) = &self.lease else { return };
        for (index, interned) in [(&self.stacks, &STACKS), (&self.strings, &STRINGS)] {
            if let Some(mut index) = index.lock() {
                index.refresh(interned, lease);
            }
        }
    }

    /// Whether one of the tables is three quarters full. When it is full events lose their stacks or names.
    pub fn is_nearly_full(&self) -> bool {
        let is_full = |index: &ForkMutex<Index>, limit: usize| {
            index.lock().is_some_and(|index| index.seen > limit / 4 * 3)
        };
        is_full(&self.stacks, MAX_STACKS) || is_full(&self.strings, MAX_STRINGS)
    }

    /// Returns an entry of one of its indices by the entry's id. `None` in a forked child that has lost the index.
    fn entry(&self, index: &ForkMutex<Index>, id: u32) -> Option<&Named> {
        let lease = self.lease.as_ref()?;
        let place = index.lock()?.by_number.get(id as usize).copied().flatten()?;
        // SAFETY: `refresh` has found it under this lease.
        Some(unsafe { place.entry(lease) })
    }
}

impl Tables for View {
    fn stack(&self, id: StackId) -> Stack<'_> {
        self.entry(&self.stacks, id).map_or(Stack::from(&[][..]), |entry| {
            let stack = entry.captured();
            // A caller that has cached this stack will not look it up again, so the span must reach up to now.
            Stack { span: stack.span.and(CaptureSpan::now()), ..stack }
        })
    }

    fn string(&self, id: StringId) -> &str {
        self.entry(&self.strings, id)
            .map_or("", |entry| core::str::from_utf8(entry.bytes()).unwrap_or_default())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        assert!(open());
        let mut cache = LookupCache::new();
        cache.words.fill(usize::MAX);
        let view = View::new().unwrap();
        let texts: Vec<String> =
            (0..=MAX_STRING + 20).map(|len| "x\0ö".repeat(len)[..].chars().take(len).collect()).collect();
        let ids: Vec<_> = texts.iter().map(|text| string(text, &mut cache).unwrap()).collect();
        view.refresh();
        for (text, id) in texts.iter().zip(&ids) {
            assert_eq!(view.string(*id), cut(text));
            assert_eq!(string(text, &mut cache), Some(*id));
        }
        assert_eq!(string("", &mut cache), Some(0));
        let late = string("late", &mut cache).unwrap();
        let frames = stack(&[1, 2, 3]).unwrap();
        assert_eq!((view.string(late), view.stack(frames).addresses), ("", &[][..]));
        view.refresh();
        assert_eq!((view.string(late), view.stack(frames).addresses), ("late", &[1, 2, 3][..]));
    }
}
