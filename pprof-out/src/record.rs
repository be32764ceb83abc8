//! A record: one stack of a profile with its counts, before its addresses are resolved.

use std::borrow::Cow;
use std::sync::Arc;

use rtprof_profiler::BlockKinds;
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::stack::Stack;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;

/// Labels, in the order of their keys.
pub(crate) type Labels = Cow<'static, [(String, String)]>;

/// A stack with its counts.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Return addresses, leaf first.
    pub(crate) stack: Cow<'static, [usize]>,
    /// The time span in which the addresses were captured.
    pub(crate) span: CaptureSpan,
    pub(crate) leaf: Leaf,
    pub(crate) labels: Labels,
    /// The counts, in the units of the [kind](crate::kind::ProfileKind) of profile.
    pub(crate) counts: [i64; 2],
    /// The baseline that a delta profile subtracts; zeros for a state at one moment.
    pub(crate) base: [i64; 2],
    pub(crate) detail: Detail,
}

/// The functions that are hidden at the leaf of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leaf {
    /// The allocator and the profiler.
    Allocator,
    /// The hooks that recorded the event.
    Hooks,
    /// What lies between a call of the C library and the kernel.
    Call,
    /// This many functions, as a caller requested.
    Skip(usize),
}

/// The data that, beside the labels, distinguishes records of one stack, or describes them.
#[derive(Clone, Debug, Default)]
pub(crate) enum Detail {
    #[default]
    None,
    /// Objects of this size, sampled at this rate.
    Objects { size: usize, rate: usize },
    /// A wake that may not have been an unlock, of threads that have waited in one function, with the innermost frames of the
    /// first of the waits, if known.
    Wake { woken_in: u32, waited_at: Option<Box<Stack<'static>>> },
    /// Waits of this kind.
    Waits(BlockKinds),
    /// CPU samples.
    Samples(Box<Sampled>),
}

/// The thread and the task of a CPU sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sampled {
    /// The kernel's number of the thread, and its name; `None` unless threads are told apart.
    pub(crate) thread: Option<(u32, Arc<str>)>,
    /// The name of the task, if it has one.
    pub(crate) task: Option<Arc<str>>,
}

/// The part of a record that identifies it in two snapshots.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct RecordKey<'a> {
    stack: &'a [usize],
    leaf: Leaf,
    labels: &'a [(String, String)],
    /// Size and rate of objects; the function in which the woken threads have waited; the kind of waits.
    apart: [usize; 2],
}

impl Record {
    /// A record without labels and without a baseline.
    pub(crate) fn new(stack: impl Into<Cow<'static, [usize]>>, leaf: Leaf, counts: [i64; 2]) -> Self {
        Self {
            stack: stack.into(),
            span: CaptureSpan::UNKNOWN,
            leaf,
            labels: Cow::Borrowed(&[]),
            counts,
            base: [0; 2],
            detail: Detail::None,
        }
    }

    /// A record of a stack that the profiler keeps.
    pub(crate) fn of_kept(stack: Stack<'static>, leaf: Leaf, counts: [i64; 2]) -> Self {
        Self { span: stack.span, ..Self::new(stack.addresses, leaf, counts) }
    }

    pub(crate) fn captured(&self) -> Stack<'_> {
        Stack { addresses: &self.stack, span: self.span }
    }

    /// Returns all stacks of the record that need names: its own, and the one of the wait that it ended.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack<'_>> + Clone {
        let told_by = match &self.detail {
            Detail::Wake { waited_at: Some(waited_at), .. } => Some(**waited_at),
            _ => None,
        };
        std::iter::once(self.captured()).chain(told_by)
    }

    /// Whether the record belongs in the profile, as far as function names show.
    pub(crate) fn is_shown(&self, locations: &mut Locations) -> bool {
        self.may_belong(locations) && !(locations.are_from_program() && self.frames(locations).is_empty())
    }

    /// Whether it belongs there wherever its stack begins.
    pub(crate) fn may_belong(&self, locations: &mut Locations) -> bool {
        match &self.detail {
            Detail::Wake { waited_at, .. } => {
                locations.may_be_unlock(self.captured(), waited_at.as_deref().copied())
            }
            _ => true,
        }
    }

    /// Returns the record's stack, resolved and cut.
    pub(crate) fn frames<'l>(&self, locations: &'l mut Locations) -> Frames<'l> {
        match self.leaf {
            Leaf::Allocator => locations.allocation(self.captured()),
            Leaf::Hooks => locations.event(self.captured()),
            Leaf::Call => locations.running(self.captured()),
            Leaf::Skip(functions) => locations.skipped(self.captured(), functions),
        }
    }

    /// Returns the counts less the baseline.
    pub(crate) fn added(&self) -> [i64; 2] {
        std::array::from_fn(|at| self.counts[at].saturating_sub(self.base[at]))
    }

    pub(crate) fn key(&self) -> RecordKey<'_> {
        let apart = match self.detail {
            Detail::Objects { size, rate } => [size, rate],
            Detail::Wake { woken_in, .. } => [woken_in as usize, 1],
            Detail::Waits(kind) => [kind.bits().into(), 2],
            _ => [0; 2],
        };
        RecordKey { stack: &self.stack, leaf: self.leaf, labels: &self.labels, apart }
    }
}
