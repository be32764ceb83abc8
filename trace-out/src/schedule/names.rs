//! The strings and stacks of a trace and their ids.
//!
//! Goroutines are named by their stacks: the newest Go uses the outermost frame of the first stack that it sees, the
//! oldest the only frame of the stack with which the goroutine was created. So a name is written as a function that
//! calls all others; its file and line are those that started the goroutine.

use std::collections::HashMap;

use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::{StackId, StringId};

use rtprof_symbols::hash::AddressMap;

use super::event::Start;
use super::late_names::LateNames;
use super::reason::{REASONS, Reason};
use prost::encoding::encoded_len_varint;

/// The name of a goroutine without a name.
const UNNAMED: &str = "thread";

/// Go's tools omit goroutines whose function is in this package from their lists.
const HIDDEN: &str = "runtime.";

/// Stands for a name where a stack gets no root from us.
const NO_ROOT: StringId = StringId::MAX;

/// Stands for a name where a stack's root is the same as its leaf.
const LEAF_AS_ROOT: StringId = StringId::MAX - 1;

/// A frame of a stack: the ids of strings, and a PC that no other frame of the part has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) pc: u64,
    pub(crate) function: u64,
    pub(crate) file: u64,
    pub(crate) line: u64,
}

impl Frame {
    /// Returns its numbers in the order of the formats.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.pc, self.function, self.file, self.line]
    }

    /// Returns how many bytes its numbers take.
    pub(crate) fn len(&self) -> usize {
        self.numbers().into_iter().map(encoded_len_varint).sum()
    }
}

/// Receives the definitions of strings and stacks.
pub(crate) trait Definitions: Default {
    /// The most bytes of the numbers in a stack's frames.
    const STACK_BYTES: usize;

    /// Whether a stack has the name of its goroutine as its root, and an event without a stack that name alone. Go's
    /// tools take the names of goroutines from there.
    const HAS_ROOTS: bool;

    /// Defines a string. It is not empty, and `id` is neither 0 nor used twice.
    fn string(&mut self, id: u64, text: &str);

    /// Defines a stack, leaf first.
    fn stack(&mut self, id: u64, frames: &[Frame]);
}

/// The ids of strings and stacks, and their definitions.
#[derive(Clone, Default)]
pub(crate) struct Names<D> {
    texts: HashMap<Box<str>, u64>,
    /// The ids of strings, by their ids in the records.
    strings: AddressMap<u32, u64>,
    /// The start stacks of goroutines, by name, and their only frame.
    starts: AddressMap<u32, (u64, Frame)>,
    /// The start stacks of goroutines without a name.
    pub(super) late: LateNames,
    /// The PC of each frame.
    frames: HashMap<(u64, u64, u64), u64>,
    /// The ids of stacks of the program's code with the name as root.
    stacks: AddressMap<u64, u64>,
    code: Vec<CodeStack>,
    last_stack: u64,
    /// The ids of the texts of reasons; 0 if not used yet.
    reasons: Vec<u64>,
    pub(crate) definitions: D,
}

/// A stack of the program's code to which events refer.
#[derive(Clone, Copy)]
pub(super) struct CodeStack {
    pub(super) id: u64,
    pub(super) stack: StackId,
    pub(super) root: Root,
}

/// The outermost frame that is added to a stack of the program's code.
#[derive(Clone, Copy)]
pub(super) enum Root {
    None,
    /// The name of its goroutine.
    Name(Frame),
    /// The name of its goroutine, once it is known.
    Late(u32),
    /// The same frame as the leaf.
    Leaf,
}

impl<D: Definitions> Names<D> {
    /// Returns the id of a text, defined if it is new. 0 is the empty one.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.texts.get(text) {
            return id;
        }
        let id = self.texts.len() as u64 + 1;
        self.definitions.string(id, text);
        self.texts.insert(text.into(), id);
        id
    }

    /// Returns the id of a string of the records.
    #[inline]
    pub(super) fn string(&mut self, string: StringId, tables: &dyn Tables) -> u64 {
        if let Some(&id) = self.strings.get(&string) {
            return id;
        }
        let id = self.text(tables.string(string));
        self.strings.insert(string, id);
        id
    }

    /// Returns the frame with this function, file and line. Readers identify a frame by its PC, and use the first frame
    /// with that PC for all: so each frame of a part has a distinct PC, and as small a one as possible. A format with
    /// several parts needs others in the file.
    pub(super) fn frame(&mut self, function: u64, file: u64, line: u64) -> Frame {
        let next = self.frames.len() as u64 + 1;
        let pc = *self.frames.entry((function, file, line)).or_insert(next);
        Frame { pc, function, file, line }
    }

    /// Returns the id that stands for the name of a nameless goroutine that this stack has created.
    pub(super) fn late(&mut self, creator: StackId) -> StringId {
        self.late.of(creator)
    }

    /// Returns the id of the text shown as this goroutine name.
    pub(super) fn name_of(&mut self, name: StringId, tables: &dyn Tables) -> u64 {
        match LateNames::index(name) {
            Some(_) => self.function(""),
            None => self.named(name, tables).1.function,
        }
    }

    /// Returns what names a goroutine of this name.
    pub(super) fn start(&mut self, name: StringId, tables: &dyn Tables) -> Start {
        match LateNames::index(name) {
            Some(index) => {
                let last = &mut self.last_stack;
                let stack = self.late.start(index, || {
                    *last += 1;
                    *last
                });
                Start { stack, name: 0 }
            }
            None => {
                let (stack, frame) = self.named(name, tables);
                Start { stack, name: frame.function }
            }
        }
    }

    fn next_stack(&mut self) -> u64 {
        self.last_stack += 1;
        self.last_stack
    }

    fn named(&mut self, name: StringId, tables: &dyn Tables) -> (u64, Frame) {
        if let Some(&start) = self.starts.get(&name) {
            return start;
        }
        let (function, position) = tables.string(name).split_once('\n').unwrap_or((tables.string(name), ""));
        let function = self.function(function);
        // The place of the start: `src/main.rs:17`.
        let (file, line) = position.rsplit_once(':').unwrap_or_default();
        let frame = (self.text(file), line.parse().unwrap_or(0));
        let frame = self.frame(function, frame.0, frame.1);
        let start = (self.next_stack(), frame);
        self.definitions.stack(start.0, &[frame]);
        self.starts.insert(name, start);
        start
    }

    /// Returns the start stack of a goroutine of this name, which is shown as it is.
    pub(super) fn start_of(&mut self, name: &str) -> u64 {
        let function = self.text(name);
        let frame = self.frame(function, 0, 0);
        let start = self.next_stack();
        self.definitions.stack(start, &[frame]);
        start
    }

    /// Returns the id of a goroutine's name as the tools should show it.
    pub(super) fn function(&mut self, name: &str) -> u64 {
        match name {
            "" => self.text(UNNAMED),
            hidden if hidden.starts_with(HIDDEN) => self.text(&format!("{UNNAMED} {hidden}")),
            _ => self.text(name),
        }
    }

    /// Returns the id of a stack of the records, in a goroutine of this name. Without a stack it is the name alone,
    /// because the oldest Go omits events without a stack from its profiles.
    #[inline]
    pub(super) fn stack(&mut self, stack: StackId, name: StringId, tables: &dyn Tables) -> u64 {
        let name = if D::HAS_ROOTS { name } else { self.without_root(stack, name) };
        if !D::HAS_ROOTS && stack == 0 {
            return 0;
        }
        let key = u64::from(stack) << 32 | u64::from(name);
        match self.stacks.get(&key) {
            Some(&id) => id,
            None => self.add_stack(stack, name, tables),
        }
    }

    /// Returns the name under which a stack is found if it has no root. The stack may still name its goroutine.
    #[inline]
    fn without_root(&mut self, stack: StackId, name: StringId) -> StringId {
        if stack != 0
            && let Some(index) = LateNames::index(name)
        {
            self.late.runs(index, stack);
        }
        NO_ROOT
    }

    /// Returns the id of a stack of an unknown goroutine; 0 for none.
    pub(super) fn unnamed_stack(&mut self, stack: StackId, tables: &dyn Tables) -> u64 {
        if stack == 0 { 0 } else { self.stack(stack, NO_ROOT, tables) }
    }

    /// Returns the id of the stack at which a region starts; if there is none, of its goroutine's name, or 0.
    ///
    /// The tools group regions by where they start: the oldest Go takes the leaf of this stack for the place, as
    /// intended, the newest the outermost frame. So the leaf is added as the root as well: with the thread's name as
    /// the root, the same region would be listed once for each thread, at no file and line 0.
    pub(super) fn region(&mut self, stack: StackId, goroutine: Option<StringId>, tables: &dyn Tables) -> u64 {
        match goroutine {
            Some(name) if stack == 0 => self.stack(stack, name, tables),
            _ if stack == 0 => 0,
            _ => self.stack(stack, LEAF_AS_ROOT, tables),
        }
    }

    #[cold]
    fn add_stack(&mut self, stack: StackId, name: StringId, tables: &dyn Tables) -> u64 {
        let root = match name {
            NO_ROOT => Root::None,
            LEAF_AS_ROOT => Root::Leaf,
            _ if stack == 0 => return self.start(name, tables).stack,
            _ => match LateNames::index(name) {
                Some(index) => {
                    self.late.runs(index, stack);
                    self.start(name, tables);
                    Root::Late(index)
                }
                None => Root::Name(self.named(name, tables).1),
            },
        };
        let id = self.next_stack();
        self.code.push(CodeStack { id, stack, root });
        self.stacks.insert(u64::from(stack) << 32 | u64::from(name), id);
        id
    }

    /// Returns the id of the text for a reason.
    #[inline]
    pub(super) fn reason(&mut self, reason: Reason) -> u64 {
        match self.reasons.get(reason.number()) {
            Some(&id) if id != 0 => id,
            _ => self.add_reason(reason),
        }
    }

    #[cold]
    fn add_reason(&mut self, reason: Reason) -> u64 {
        let id = self.text(&reason.text());
        self.reasons.resize(REASONS, 0);
        self.reasons[reason.number()] = id;
        id
    }

    /// Takes all ids and definitions, for a part of the trace whose stacks are looked up later. The next part begins
    /// with none.
    pub(crate) fn take_part(&mut self) -> Self {
        let late = self.late.clone();
        let part = std::mem::replace(self, Self { late, ..Self::default() });
        // These find the ids of records, and there are no more of them.
        Self {
            strings: AddressMap::default(),
            starts: AddressMap::default(),
            stacks: AddressMap::default(),
            reasons: Vec::new(),
            ..part
        }
    }

    /// Returns the memory that it takes, roughly.
    pub(crate) fn memory(&self) -> usize {
        let texts: usize = self.texts.keys().map(|text| text.len() + 4 * size_of::<usize>()).sum();
        let frames = self.frames.len() * size_of::<[u64; 5]>();
        texts + frames + self.late.memory() + self.code.len() * size_of::<CodeStack>()
    }

    /// Forgets all ids, for a part of the trace that has its own.
    pub(crate) fn forget_ids(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.forget_ids();
        *self = Self { late, ..Self::default() };
    }

    /// Takes all stacks of code that have an id.
    pub(super) fn take_code(&mut self) -> Vec<CodeStack> {
        std::mem::take(&mut self.code)
    }
}
