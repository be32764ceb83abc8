//! The texts and stacks of a generation, and which of them a sequence uses.
//!
//! In the file each sequence has its own: a reader may not know an id of another sequence. So a sequence notes what it
//! uses, and gets only that.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::schedule::{Definitions, Frame};

use super::proto;

/// Ids below are constant texts; the others are texts of the trace.
const CONSTANTS: u64 = 16;

macro_rules! constants {
    ($(#[$doc:meta])* $module:ident: $($(#[$text_doc:meta])* $name:ident = $number:literal $text:literal;)*) => {
        $(#[$doc])*
        pub(super) mod $module {
            $($(#[$text_doc])* pub(crate) const $name: u64 = $number;)*

            pub(crate) fn text(iid: u64) -> &'static str {
                match iid {
                    $($number => $text,)*
                    _ => "",
                }
            }
        }
    };
}

constants! {
    /// Names of slices and instants.
    name:
    RUNNING = 1 "running";
    SYSCALL = 2 "syscall";
    UNBLOCK = 3 "unblock";
    SPAWN = 4 "spawn";
    POLL = 5 "poll";
    CAN_RUN = 6 "can run";
    COLLECTION = 7 "collection";
    SWEEP = 8 "sweep";
    SWEPT = 9 "swept";
    ASSIST = 10 "assist";
    ASSISTED = 11 "assisted";
    WAITS = 12 "waits";
}

constants! {
    /// Categories. What has a constant name has none, which saves two bytes, and neither have regions.
    category:
    WAIT = 1 "wait";
    /// The beginning is older than the trace.
    WAIT_BEFORE = 2 "wait-before-trace";
    POLL = 3 "poll";
    TASK = 4 "task";
    LOG = 5 "log";
    COLLECTOR = 6 "collector";
}

constants! {
    /// Names of annotations.
    annotation:
    LABELS = 1 "labels";
    TASK = 2 "task";
    BYTES = 3 "bytes";
    NUMBER = 4 "number";
}

/// Returns the id of a text of the trace, among names, categories and values alike.
#[inline]
pub(super) fn iid(text: u64) -> u64 {
    text + CONSTANTS
}

/// The mapping of all frames.
const PROGRAM: u64 = 1;

/// All strings and stacks of a generation.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    /// By id, from 1 on.
    strings: Vec<Box<str>>,
    /// The PCs of the frames of each stack, leaf first, by id.
    stacks: Vec<Box<[u32]>>,
    /// By PC.
    frames: Vec<Option<Frame>>,
}

impl Definitions for Tables {
    const STACK_BYTES: usize = usize::MAX;
    const HAS_ROOTS: bool = false;

    fn string(&mut self, id: u64, text: &str) {
        self_check!(id == self.strings.len() as u64 + 1);
        self.strings.push(text.into());
    }

    fn stack(&mut self, id: u64, frames: &[Frame]) {
        for &frame in frames {
            put_at(&mut self.frames, frame.pc as usize, Some(frame));
        }
        put_at(&mut self.stacks, id as usize, frames.iter().map(|frame| frame.pc as u32).collect());
    }
}

fn put_at<T: Clone + Default>(table: &mut Vec<T>, index: usize, entry: T) {
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    table[index] = entry;
}

impl Tables {
    /// Returns a text; empty for 0.
    pub(super) fn string_of(&self, id: u64) -> &str {
        match id {
            0 => "",
            id => self.strings.get(id as usize - 1).map_or("", |text| text),
        }
    }

    /// Returns the name of a slice.
    pub(super) fn name_of(&self, iid: u64) -> &str {
        match iid {
            0..CONSTANTS => name::text(iid),
            iid => self.string_of(iid - CONSTANTS),
        }
    }

    /// Returns the memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        let strings: usize = self.strings.iter().map(|text| text.len() + size_of::<Box<str>>()).sum();
        let stacks: usize = self.stacks.iter().map(|pcs| size_of_val(&**pcs) + size_of::<Box<[u32]>>()).sum();
        strings + stacks + self.frames.len() * size_of::<Option<Frame>>()
    }

    /// Returns the only frame of the stack that names a goroutine.
    pub(super) fn start_of(&self, stack: u64) -> Option<Frame> {
        let &pc = self.stacks.get(stack as usize)?.first()?;
        self.frames[pc as usize]
    }

    /// Returns what a sequence uses.
    pub(super) fn interned(&self, used: &Used, program: &str) -> proto::InternedData {
        let texts = |ids: &IdBits, constant: fn(u64) -> &'static str| {
            let text = |iid| match iid {
                0..CONSTANTS => constant(iid).to_owned(),
                iid => self.string_of(iid - CONSTANTS).to_owned(),
            };
            ids.iter().map(|iid| proto::Named { iid, name: text(iid) }).collect()
        };
        let mut data = proto::InternedData {
            event_categories: texts(&used.categories, category::text),
            event_names: texts(&used.names, name::text),
            debug_annotation_names: texts(&used.annotations, annotation::text),
            debug_annotation_string_values: texts(&used.values, |_| ""),
            ..Default::default()
        };
        let (mut frames, mut functions, mut paths) = <(IdBits, IdBits, IdBits)>::default();
        for iid in used.stacks.iter() {
            let pcs = self.stacks.get(iid as usize).map_or(&[][..], |pcs| pcs);
            for &pc in pcs {
                frames.insert(pc.into());
            }
            let frame_ids = pcs.iter().rev().map(|&pc| pc.into()).collect();
            data.callstacks.push(proto::Callstack { iid, frame_ids });
        }
        for frame in frames.iter().filter_map(|pc| self.frames[pc as usize]) {
            functions.insert(frame.function);
            if frame.file != 0 {
                paths.insert(frame.file);
            }
            data.frames.push(self.frame(&frame));
        }
        if !data.frames.is_empty() {
            data.mapping_paths.push(proto::Named { iid: PROGRAM, name: program.to_owned() });
            data.mappings.push(proto::Mapping { iid: PROGRAM, path_string_ids: vec![PROGRAM] });
        }
        let named = |iid| proto::Named { iid, name: self.string_of(iid).to_owned() };
        data.function_names = functions.iter().map(named).collect();
        data.source_paths = paths.iter().map(named).collect();
        data
    }

    fn frame(&self, frame: &Frame) -> proto::Frame {
        // Readers take frames of one PC for the same, in all sequences and generations. So the PC is made of what
        // distinguishes frames.
        let mut hasher = DefaultHasher::new();
        (self.string_of(frame.function), self.string_of(frame.file), frame.line).hash(&mut hasher);
        proto::Frame {
            iid: frame.pc,
            function_name_id: frame.function,
            mapping_id: PROGRAM,
            rel_pc: hasher.finish() >> 16,
            source_path_iid: frame.file,
            line_number: frame.line as u32,
        }
    }
}

/// A set of small ids.
#[derive(Clone, Debug, Default)]
pub(super) struct IdBits(Vec<u64>);

impl IdBits {
    /// Returns the memory that it takes.
    fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Inserts an id unless it is 0, which stands for none.
    #[inline]
    pub(super) fn note(&mut self, id: u64) {
        if id != 0 {
            self.insert(id);
        }
    }

    #[inline]
    fn insert(&mut self, id: u64) {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        match self.0.get_mut(word) {
            Some(bits) => *bits |= bit,
            None => {
                self.0.resize(word + 1, 0);
                self.0[word] = bit;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.0.iter().enumerate().filter(|(_, bits)| **bits != 0);
        words.flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u64 * 64 + bit)
        })
    }
}

/// The ids that a sequence uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) names: IdBits,
    pub(super) categories: IdBits,
    pub(super) stacks: IdBits,
    pub(super) annotations: IdBits,
    pub(super) values: IdBits,
}

impl Used {
    /// Returns the memory that it takes beside itself.
    pub(super) fn memory(&self) -> usize {
        let Self { names, categories, stacks, annotations, values } = self;
        [names, categories, stacks, annotations, values].map(IdBits::memory).iter().sum()
    }
}
