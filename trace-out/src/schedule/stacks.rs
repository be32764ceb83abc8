//! The definitions of stacks, with the names of their functions.

use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_runtime::stack::Stack;
use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::StackId;

use rtprof_symbols::hash::AddressMap;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::path::in_crate;
use rtprof_symbols::startup::THREAD_START;
use rtprof_symbols::symbol_cache::Function;
use rtprof_symbols::view::View;

use super::names::{Definitions, Frame, Names, Root};

/// The most frames of a stack. Go: `traceStackSize`.
const FRAMES: usize = 128;

/// The most bytes of a function's or a file's name; of longer ones the end is kept, which is more specific.
const TEXT: usize = rtprof_tracer::record::MAX_STRING;

/// Defines all stacks of code. Returns how many addresses have no name because their file was not read in time.
pub(crate) fn define<D: Definitions>(names: &mut Names<D>, tables: &dyn Tables, view: View) -> u64 {
    let _workspace = hook::workspace();
    let stacks = names.take_code();
    if stacks.is_empty() {
        settle(names, |_, _| None);
        return 0;
    }
    // The stacks are fetched before the loader's list is read for the locations, because that list does not cover later
    // captures.
    let captured: Vec<Stack<'_>> = stacks.iter().map(|stack| tables.stack(stack.stack)).collect();
    let mut locations = Locations::new(view);
    locations.prepare(captured.iter().copied());
    let mut functions = AddressMap::default();
    settle(names, |names, stack| outermost(names, tables.stack(stack), &mut locations));
    let mut frames = Vec::new();
    for (stack, captured) in stacks.into_iter().zip(captured) {
        frames.clear();
        for (address, lines) in locations.event(captured).shown() {
            for line in lines {
                let (function, file) = ids(&line.function, &mut functions, names);
                frames.push(names.frame(function, file, line.line.into()));
            }
            if lines.is_empty() {
                let function = names.text(&address.stand_in);
                frames.push(names.frame(function, 0, 0));
            }
        }
        let root = match stack.root {
            Root::None => None,
            Root::Name(frame) => Some(frame),
            Root::Late(index) => names.late.frame(index),
            Root::Leaf => frames.first().copied(),
        };
        shorten(&mut frames, root, D::STACK_BYTES);
        names.definitions.stack(stack.id, &frames);
    }
    locations.late() as u64
}

/// A thread's first function, as the tools should show it, with file and line.
struct Runs {
    function: u64,
    file: u64,
    line: u64,
}

/// Names the goroutines without a name by their first function.
fn settle<D: Definitions>(
    names: &mut Names<D>,
    mut first_function: impl FnMut(&mut Names<D>, StackId) -> Option<Runs>,
) {
    for index in 0..names.late.all.len() {
        let late = names.late.all[index];
        if late.start == 0 {
            continue;
        }
        let runs = late.runs.into_iter().flatten().find_map(|stack| first_function(names, stack));
        let Runs { function, file, line } =
            runs.unwrap_or_else(|| Runs { function: names.function(""), file: 0, line: 0 });
        let frame = names.frame(function, file, line);
        names.late.all[index].frame = Some(frame);
        names.definitions.stack(late.start, &[frame]);
    }
}

/// Returns the program's outermost function in a stack; `None` if the outermost is ours, because the thread was not in its own
/// yet, or not any more.
fn outermost<D: Definitions>(
    names: &mut Names<D>,
    stack: Stack<'_>,
    locations: &mut Locations,
) -> Option<Runs> {
    let frames = locations.event(stack);
    let lines = frames.shown().flat_map(|(_, lines)| lines);
    let line = lines.filter(|line| *line.function.name != *THREAD_START).last()?;
    if ["rtprof_hooks", "rtprof_runtime"].iter().any(|ours| in_crate(&line.function.name, ours)) {
        return None;
    }
    let (function, file) = (names.function(end_of(&line.function.name)), end_of(&line.function.file));
    Some(Runs { function, file: names.text(file), line: line.line.into() })
}

/// Returns the ids of a function's names. Functions are shared objects, nearly always the same one.
fn ids<D: Definitions>(
    function: &Arc<Function>,
    known: &mut AddressMap<usize, (Arc<Function>, u64, u64)>,
    names: &mut Names<D>,
) -> (u64, u64) {
    // The map keeps the object alive, so that its address cannot be reused for another.
    let (_, name, file) = known.entry(Arc::as_ptr(function) as usize).or_insert_with(|| {
        let name = names.text(end_of(&function.name));
        (function.clone(), name, names.text(end_of(&function.file)))
    });
    (*name, *file)
}

/// Removes as many of the outermost frames as needed for a reader to accept the stack, and adds the root to the rest.
fn shorten(frames: &mut Vec<Frame>, root: Option<Frame>, bytes: usize) {
    let mut room = bytes - root.as_ref().map_or(0, Frame::len);
    let fitting = frames
        .iter()
        .take(FRAMES - usize::from(root.is_some()))
        .take_while(|frame| {
            let fits = frame.len() <= room;
            room = room.saturating_sub(frame.len());
            fits
        })
        .count();
    frames.truncate(fitting);
    frames.extend(root);
}

/// Returns the last [`TEXT`] bytes, or a few less, so that characters stay whole.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(TEXT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_keep_their_leaf_and_their_root() {
        let frame = |pc| Frame { pc, function: 1 << 30, file: 1 << 30, line: 1 };
        let root = Frame { pc: 1, function: 1, file: 0, line: 0 };
        let mut frames: Vec<_> = (0..500).map(|at| frame(at + (1 << 30))).collect();
        shorten(&mut frames, Some(root), 2036);
        assert_eq!(frames.last(), Some(&root));
        assert_eq!(frames[0], frame(1 << 30));
        let len: usize = frames.iter().map(Frame::len).sum();
        assert!((2036 - 40..=2036).contains(&len), "{} frames of {len} bytes", frames.len());
        let mut short: Vec<_> = (2..1000).map(|pc| Frame { pc, function: 1, file: 0, line: 0 }).collect();
        shorten(&mut short, Some(root), 2036);
        assert_eq!((short.len(), short[0].pc, short[127]), (128, 2, root));
        let mut few = vec![frame(9)];
        shorten(&mut few, None, 2036);
        assert_eq!(few, [frame(9)]);
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(end_of("short"), "short");
        let long = format!("{}é{}", "a".repeat(500), "b".repeat(TEXT - 1));
        assert_eq!(end_of(&long), "b".repeat(TEXT - 1));
    }
}
