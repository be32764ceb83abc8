//! What a goroutine runs, and where it was started: this distinguishes goroutines without a name.

use core::fmt::Write as _;
use core::panic::Location;

use crate::primitive::{AtomicPtr, Ordering};

/// What a goroutine runs, and where in the program's source it was started.
#[derive(Clone, Copy)]
pub struct Start {
    runs: fn() -> &'static str,
    at: &'static Location<'static>,
    may_block: bool,
}

impl Start {
    /// Makes the start of a goroutine that runs a closure of type `F`, started by the caller. Safe to call in a hook.
    #[inline(always)]
    #[track_caller]
    pub fn here<F>() -> Self {
        Self { runs: core::any::type_name::<F>, at: Location::caller(), may_block: false }
    }

    /// As [`here`](Self::here), of a task that is made in order to block a thread.
    #[inline(always)]
    #[track_caller]
    pub fn of_blocking<F>() -> Self {
        Self { may_block: true, ..Self::here::<F>() }
    }

    /// Makes the start of a goroutine that runs what `runs` returns, started by the caller. Safe to call in a hook.
    #[inline(always)]
    #[track_caller]
    pub fn here_as(runs: fn() -> &'static str) -> Self {
        Self { runs, at: Location::caller(), may_block: false }
    }

    /// Whether it is made in order to block a thread, as by `spawn_blocking`.
    pub fn may_block(self) -> bool {
        self.may_block
    }

    /// Returns the type of the closure: for a closure in `app::main`, `app::main::{{closure}}`.
    pub fn runs(self) -> &'static str {
        (self.runs)()
    }

    /// Returns two words that identify it: equal only for the same code and source location.
    #[inline]
    pub fn identity(self) -> [usize; 2] {
        [self.runs as *const () as usize, (&raw const *self.at).addr()]
    }

    /// Returns the line that started it.
    pub fn at(self) -> &'static Location<'static> {
        self.at
    }
}

impl core::fmt::Debug for Start {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} at {}", self.runs(), self.at)
    }
}

/// The maximum number of bytes of a [`title`].
pub const MAX_TITLE: usize = 512;

/// Writes the title of a goroutine in traces: its name, or, if that is empty, the type of the closure that it runs; and
/// where `start` is known, in a second line the file and line that started it, `src/main.rs:17`. A name that is too
/// long loses its end, a file path its beginning. Safe to call in a hook.
pub fn title<'a>(name: &str, start: Option<Start>, buffer: &'a mut [u8; MAX_TITLE]) -> &'a str {
    let mut title = Text { bytes: buffer, len: 0 };
    let name = match start {
        Some(start) if name.is_empty() => start.runs(),
        _ => name,
    };
    // Room for the line number: 10 digits, the colon and the line feed.
    title.push_line(name, MAX_TITLE / 2);
    if let Some(start) = start {
        let file = start.at.file();
        let room = MAX_TITLE - title.len - 12;
        let mut from = file.len().saturating_sub(room);
        while !file.is_char_boundary(from) {
            from += 1;
        }
        title.push("\n");
        title.push_line(&file[from..], room);
        let _ = write!(title, ":{}", start.at.line());
    }
    let Text { bytes, len } = title;
    // The text was cut at character boundaries.
    core::str::from_utf8(&bytes[..len]).unwrap_or_default()
}

/// A text that grows in a buffer.
struct Text<'a> {
    bytes: &'a mut [u8; MAX_TITLE],
    len: usize,
}

impl Text<'_> {
    /// Appends as much of `text` as fits.
    fn push(&mut self, text: &str) {
        let mut len = text.len().min(MAX_TITLE - self.len);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.bytes[self.len..][..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
    }

    /// Appends at most `limit` bytes of `text`, in one line.
    fn push_line(&mut self, text: &str, limit: usize) {
        let mut end = text.len().min(limit);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for (number, part) in text[..end].split('\n').enumerate() {
            self.push(if number == 0 { "" } else { " " });
            self.push(part);
        }
    }
}

impl core::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// A [`Start`] in a slot. Its two halves may be read from two goroutines; the slot's id reveals that.
#[derive(Default)]
pub(crate) struct StartCell {
    /// A `fn() -> &'static str`, or null.
    runs: AtomicPtr<()>,
    /// With [`MAY_BLOCK`] in the lowest bit, which no location's address has.
    at: AtomicPtr<Location<'static>>,
}

const MAY_BLOCK: usize = 1;
const _: () = assert!(align_of::<Location<'static>>() > MAY_BLOCK);

impl StartCell {
    // Release, in both: a reader that reads one of them from a new goroutine, and then reads the id again, sees that
    // the old goroutine has ended.
    pub(crate) fn set(&self, start: Option<Start>) {
        let (runs, at) = match start {
            Some(start) => {
                let at = (&raw const *start.at).cast_mut();
                (start.runs as *mut (), at.map_addr(|at| at | usize::from(start.may_block)))
            }
            None => (core::ptr::null_mut(), core::ptr::null_mut()),
        };
        self.runs.store(runs, Ordering::Release);
        self.at.store(at, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Start> {
        let runs = self.runs.load(Ordering::Acquire);
        let tagged = self.at.load(Ordering::Acquire);
        let may_block = tagged.addr() & MAY_BLOCK != 0;
        // SAFETY: without its tag the pointer is null, or was made from a static reference.
        let at = unsafe { tagged.map_addr(|at| at & !MAY_BLOCK).as_ref() }?;
        if runs.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so `set` made it from a function of this type.
        let runs = unsafe { core::mem::transmute::<*mut (), fn() -> &'static str>(runs) };
        Some(Start { runs, at, may_block })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn start_of<F>(_: F) -> Start {
        Start::here::<F>()
    }

    #[test]
    fn titles() {
        let start = start_of(|| ());
        assert!(start.runs().ends_with("::titles::{{closure}}"), "{start:?}");
        let mut buffer = [0; MAX_TITLE];
        let place = format!("{}:{}", start.at().file(), start.at().line());
        assert_eq!(title("a\nname", Some(start), &mut buffer), format!("a name\n{place}"));
        assert_eq!(title("", Some(start), &mut buffer), format!("{}\n{place}", start.runs()));
        assert_eq!((title("name", None, &mut buffer), title("", None, &mut [0; MAX_TITLE])), ("name", ""));
        let long = title(&"\u{fc}".repeat(500), Some(start), &mut buffer);
        assert_eq!(long, format!("{}\n{place}", "\u{fc}".repeat(MAX_TITLE / 4)));
    }

    #[test]
    fn a_cell_gives_what_it_was_given() {
        let cell = StartCell::default();
        assert!(cell.get().is_none());
        let start = start_of(|| ());
        cell.set(Some(start));
        assert_eq!(format!("{:?}", cell.get().unwrap()), format!("{start:?}"));
        cell.set(None);
        assert!(cell.get().is_none());
    }
}
