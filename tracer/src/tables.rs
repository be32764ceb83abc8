//! The stacks and strings of a trace: each distinct one once, by a small number.
//!
//! Both are interning tables of `profiler::stack`, with a number in each entry; a string is a stack whose words are its
//! bytes. Emptied when a trace is over.

use std::collections::HashSet;

use rtprof_runtime::hook::Hook;
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::primitive::{AtomicU32, Ordering};
use rtprof_runtime::stack::table::{Entry, Key, Table};
use rtprof_runtime::stack::{MAX_STACK, Stack, capture, with_room};
use rtprof_runtime::start;
use rtprof_runtime::start::{MAX_TITLE, Start};
use rtprof_runtime::task::KeptStack;

use crate::generation::Tables;
use crate::record::{MAX_STRING, StackId, StringId, cut};

/// Distinct stacks of a trace.
const MAX_STACKS: usize = 1 << 16;
/// Distinct strings of a trace: names of goroutines, tasks and regions, and categories of logs.
const MAX_STRINGS: usize = 1 << 16;

const WORD: usize = size_of::<usize>();
const _: () = assert!(MAX_STRING <= MAX_STACK * WORD);

/// What distinguishes entries beside the words: for a string its length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Length(usize);

impl Key for Length {
    fn seed(&self) -> u64 {
        self.0 as u64
    }
}

/// The number of an entry; 0 until somebody asks for it.
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
        // Leaves `errno` as it was: memory may be refused.
        let _hook = Hook::enter();
        self.table.intern(key, words).ok()
    }
}

type Named = Entry<Length, Number>;

trait Text {
    /// The bytes of a string.
    fn bytes(&self) -> &[u8];
}

impl Text for Named {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: any words are bytes, and as many of them were the string's as its key says.
        unsafe { core::slice::from_raw_parts(self.stack().as_ptr().cast::<u8>(), self.key.0) }
    }
}

const STACK_PLACES: usize = 32;
const STRING_PLACES: usize = 16;
const KEPT_PLACES: usize = 32;
const TITLE_PLACES: usize = 16;

/// What a lane has beside it to work with: room for a stack or a string, which would take as long to zero as an event
/// may, and what it has looked up last: hashing a stack takes as long again.
pub(crate) struct LookupCache {
    words: [usize; MAX_STACK],
    /// The trace that the entries are of.
    session: u32,
    stacks: [Option<&'static Named>; STACK_PLACES],
    strings: [Option<&'static Named>; STRING_PLACES],
    /// The numbers of stacks of tasks, with what tells these apart; 0 where there is none.
    kept: [(usize, StackId); KEPT_PLACES],
    /// The numbers of titles of goroutines without a name, by what tells their starts apart.
    titles: [([usize; 2], StringId); TITLE_PLACES],
}

impl LookupCache {
    /// As in zeroed memory.
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

    /// Forgets what was looked up in an earlier trace, whose tables are gone.
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

/// Makes the tables. `false` when the kernel gives no memory.
pub(crate) fn open() -> bool {
    STACKS.table.open() && STRINGS.table.open()
}

/// Empties the tables and gives their memory back.
///
/// # Safety
/// Nobody is within an event, nor uses a [`View`].
pub(crate) unsafe fn clear() {
    for interned in [&STACKS, &STRINGS] {
        // SAFETY: the caller's promise.
        unsafe { interned.table.clear() };
        interned.last.store(0, Ordering::Relaxed);
    }
}

/// The number of the caller's stack. `None` when the table is full. For hooks, within an event.
#[inline]
pub(crate) fn stack_here(cache: &mut LookupCache) -> Option<StackId> {
    let depth = with_room(|| capture(&mut cache.words))?;
    let frames = &cache.words[..depth];
    // The innermost frames are the tracer's own; those after them tell most.
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

/// As `==`, which calls the C library even for a few words.
#[inline]
fn is_same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[inline]
fn spread(mix: usize) -> usize {
    (mix as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 48
}

/// The number of a stack. `None` when the table is full. For hooks, within an event.
pub(crate) fn stack(frames: &[usize]) -> Option<StackId> {
    STACKS.entry(Length(0), frames).map(|entry| entry.record.get(&STACKS.last))
}

/// The number of a stack that is kept for tasks. `None` when the table is full. For hooks, within an event.
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

/// The number of the title of a goroutine that has no name, and was started so. `None` when the table is full. For hooks, within a
/// turn.
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

/// The number of a string, cut to [`MAX_STRING`] bytes. `None` when the table is full. For hooks, within an event.
#[inline]
pub(crate) fn string(text: &str, cache: &mut LookupCache) -> Option<StringId> {
    if text.is_empty() {
        return Some(0);
    }
    let bytes = cut(text).as_bytes();
    // Most names are constants of the program, and always at one address.
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

/// The tables, for who encodes what refers to them. Not for hooks.
#[derive(Default)]
pub struct View {
    stacks: Index,
    strings: Index,
}

/// The entries of a table by their numbers.
#[derive(Default)]
struct Index {
    by_number: Vec<Option<&'static Named>>,
    /// How many entries of the table were looked at, and those of them that had no number yet.
    seen: usize,
    nameless: HashSet<usize>,
}

impl Index {
    /// Looks at what is new in the table.
    fn refresh(&mut self, interned: &'static Interned) {
        let nameless = core::mem::take(&mut self.nameless);
        for address in nameless {
            // SAFETY: the address of an entry, put there below; entries live until the table is cleared, when there is no
            // view.
            self.note(unsafe { &*(address as *const Named) });
        }
        let all: Vec<_> = interned.table.iter().collect();
        // The newest come first.
        for entry in &all[..all.len() - self.seen] {
            self.note(entry);
        }
        self.seen = all.len();
    }

    fn note(&mut self, entry: &'static Named) {
        let number = entry.record.0.load(Ordering::Relaxed) as usize;
        if number == 0 {
            self.nameless.insert(&raw const *entry as usize);
            return;
        }
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        self.by_number[number] = Some(entry);
    }
}

impl View {
    /// Makes everything known that records of the past refer to.
    pub(crate) fn refresh(&mut self) {
        self.stacks.refresh(&STACKS);
        self.strings.refresh(&STRINGS);
    }
}

impl Tables for View {
    fn stack(&self, id: StackId) -> Stack<'_> {
        let entry = self.stacks.by_number.get(id as usize).copied().flatten();
        entry.map_or(Stack::from(&[][..]), |entry| {
            let stack = entry.captured();
            // A desk that knows the stack does not ask the table again: it may have been captured up to now.
            Stack { span: stack.span.and(CaptureSpan::now()), ..stack }
        })
    }

    fn string(&self, id: StringId) -> &str {
        let Some(entry) = self.strings.by_number.get(id as usize).copied().flatten() else { return "" };
        core::str::from_utf8(entry.bytes()).unwrap_or_default()
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
        let mut view = View::default();
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
