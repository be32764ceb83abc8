//! The visible part of a stack: without the machinery at its leaf (`prune`), and without std's start-up at its other
//! end (`startup`).

use std::sync::Arc;

use crate::prune::Cut;
use crate::startup::{Hidden, THREAD_START};
use crate::symbol_cache::{Function, Line, Symbols};

/// One address of a stack.
pub struct Address {
    /// The address to which the call returns.
    pub return_address: usize,
    /// The index of its module.
    pub module: Option<usize>,
    /// The symbols of the address.
    pub symbols: Arc<Symbols>,
    /// The text shown if the function has no name: `[libc.so.6]`, as in pprof, or the address.
    pub stand_in: Arc<str>,
}

/// The part of a stack that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Where it begins.
    pub cut: Cut,
    /// The hidden start-up part of the rest.
    pub(crate) startup: Option<Hidden>,
}

/// The lines of an address that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// All lines.
    Whole,
    /// The lines from the first index up to but not including the second, innermost first.
    Lines(u32, u32),
    /// No lines: the address is shown as the start of a thread.
    ThreadStart,
}

/// A line of the program's code, and the addresses from which it was reached. Several calls of one line are one place.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ProgramPlace {
    function: Arc<Function>,
    line: u32,
    callers: Vec<usize>,
}

/// A resolved stack.
pub struct Frames<'a> {
    pub(crate) addresses: &'a [Address],
    /// Indices in `addresses`, leaf first.
    pub(crate) stack: &'a [u32],
    /// The part of the stack that is shown.
    pub visible: Visible,
    pub(crate) thread_start: &'a ThreadStart,
    /// The module with rtprof, and so with the program.
    pub(crate) own_module: Option<usize>,
}

/// The line that stands for the start of a thread.
pub struct ThreadStart([Line; 1]);

impl Default for ThreadStart {
    fn default() -> Self {
        let name: Arc<str> = THREAD_START.into();
        let function = Function { system_name: name.clone(), name, file: "".into() };
        Self([Line { function: Arc::new(function), line: 0, column: 0 }])
    }
}

impl Piece {
    /// Returns the lines of the piece, innermost first.
    pub fn lines<'a>(self, address: &'a Address, thread_start: &'a ThreadStart) -> &'a [Line] {
        let all = &address.symbols.lines;
        match self {
            Self::Whole => all,
            Self::Lines(from, to) => &all[from as usize..to as usize],
            Self::ThreadStart => &thread_start.0,
        }
    }
}

impl Visible {
    /// Returns what is shown of the address at `frame`, with `lines()` lines; `None` if all of it is hidden.
    #[inline]
    pub fn piece(&self, frame: usize, lines: impl FnOnce() -> usize) -> Option<Piece> {
        if frame < self.cut.frames {
            return None;
        }
        let first = if frame == self.cut.frames { self.cut.lines } else { 0 };
        match self.startup {
            Some(startup) if frame >= startup.from.0 && frame <= startup.to.0 => {
                startup.piece(frame, first, lines())
            }
            _ if first == 0 => Some(Piece::Whole),
            _ => Some(Piece::Lines(first as u32, lines() as u32)),
        }
    }

    /// Whether the address at `frame` is hidden as start-up code.
    fn is_startup(&self, frame: usize, lines: impl FnOnce() -> usize) -> bool {
        self.startup.is_some_and(|startup| {
            (startup.from.0..=startup.to.0).contains(&frame) && startup.piece(frame, 0, lines()).is_none()
        })
    }
}

impl Hidden {
    /// Returns what is still shown of an address within the hidden range, without its `first` lines.
    fn piece(&self, frame: usize, first: usize, lines: usize) -> Option<Piece> {
        let (from, to) = match frame {
            _ if frame == self.to.0 && self.is_thread => return Some(Piece::ThreadStart),
            _ if frame == self.to.0 => (first.max(self.to.1), lines),
            _ if frame == self.from.0 => (first, self.from.1),
            _ => return None,
        };
        match (from, to) {
            (0, _) if to == lines => Some(Piece::Whole),
            _ => (from < to).then_some(Piece::Lines(from as u32, to as u32)),
        }
    }
}

impl<'a> Frames<'a> {
    /// Returns a cut that hides everything up to the program's code (`program_code`). An address of the program without a
    /// name may be its code.
    pub(crate) fn program_cut(&self) -> Option<Cut> {
        let cut = self.visible.cut;
        let mut frames = cut.frames..self.stack.len();
        frames.find_map(|frame| {
            let address = &self.addresses[self.stack[frame] as usize];
            if address.symbols.lines.is_empty() {
                return (address.module == self.own_module).then_some(Cut { frames: frame, lines: 0 });
            }
            let from = if frame == cut.frames { cut.lines } else { 0 };
            Some(Cut { frames: frame, lines: address.symbols.program.first_from(from)? })
        })
    }

    /// Returns the place in the program's code that the stack has reached. `None` if there is no code of the program, or no
    /// line is known.
    pub fn program_place(&self) -> Option<ProgramPlace> {
        let Cut { frames, lines } = self.program_cut()?;
        let address = |&at: &u32| &self.addresses[at as usize];
        let line = address(&self.stack[frames]).symbols.lines.get(lines).filter(|line| line.line != 0)?;
        let callers = self.stack[frames + 1..].iter().map(|at| address(at).return_address).collect();
        Some(ProgramPlace { function: line.function.clone(), line: line.line, callers })
    }

    /// Whether all of the stack is hidden.
    pub fn is_empty(&self) -> bool {
        self.visible.cut.frames >= self.stack.len()
    }

    /// Returns how many addresses are hidden at the leaf.
    pub fn hidden_at_leaf(&self) -> usize {
        self.visible.cut.frames
    }

    /// Returns the addresses that are shown, leaf first, each with its visible lines.
    pub fn shown(&self) -> impl Iterator<Item = (&'a Address, &'a [Line])> + use<'a> {
        let (addresses, visible, thread_start) = (self.addresses, self.visible, self.thread_start);
        self.stack.iter().enumerate().skip(visible.cut.frames).filter_map(move |(frame, &at)| {
            let address = &addresses[at as usize];
            let piece = visible.piece(frame, || address.symbols.lines.len())?;
            Some((address, piece.lines(address, thread_start)))
        })
    }

    /// Returns the return addresses except those of start-up code, leaf first, without the first `hidden` ones.
    pub fn return_addresses(&self, hidden: usize) -> impl Iterator<Item = usize> + use<'a> {
        let (addresses, visible) = (self.addresses, self.visible);
        self.stack.iter().enumerate().skip(hidden).filter_map(move |(frame, &at)| {
            let address = &addresses[at as usize];
            let is_startup = visible.is_startup(frame, || address.symbols.lines.len());
            (!is_startup).then_some(address.return_address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pieces of a stack whose addresses have two lines each.
    fn pieces(cut: (usize, usize), startup: Option<Hidden>) -> Vec<Option<Piece>> {
        let visible = Visible { cut: Cut { frames: cut.0, lines: cut.1 }, startup };
        (0..5).map(|frame| visible.piece(frame, || 2)).collect()
    }

    #[test]
    fn both_ends_are_cut_between_lines() {
        const WHOLE: Option<Piece> = Some(Piece::Whole);
        let lines = |from, to| Some(Piece::Lines(from, to));
        let main = Some(Hidden { from: (1, 1), to: (3, 1), is_thread: false, is_task: false });
        let thread = Some(Hidden { from: (2, 0), to: (4, 1), is_thread: true, is_task: false });
        assert_eq!(pieces((0, 0), None), [WHOLE; 5]);
        assert_eq!(pieces((1, 1), None), [None, lines(1, 2), WHOLE, WHOLE, WHOLE]);
        assert_eq!(pieces((0, 1), main), [lines(1, 2), lines(0, 1), None, lines(1, 2), WHOLE]);
        assert_eq!(pieces((0, 0), thread), [WHOLE, WHOLE, None, None, Some(Piece::ThreadStart)]);
        // The machinery extends into the start-up code, whose outer end stays visible.
        assert_eq!(pieces((1, 1), main), [None, None, None, lines(1, 2), WHOLE]);
        assert_eq!(pieces((3, 0), thread), [None, None, None, None, Some(Piece::ThreadStart)]);
        assert_eq!(pieces((4, 1), thread)[4], Some(Piece::ThreadStart));
        assert_eq!(pieces((4, 1), main), [None, None, None, None, lines(1, 2)]);
    }
}
