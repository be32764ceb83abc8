//! Finds what a task waits for, from the functions on the stack at which it awaits.
//!
//! Problem: a leaf future only clones the waker. Only the leaf's library knows whether that is for a channel, a lock or
//! a socket; but a trace shows it in the kind of the event, by which `go tool trace` sorts waits into its profiles.
//! Scheme: the functions of the stack are examined from the leaf outwards, and the first one that is in the table
//! decides. Primitives on which others are built (`batch_semaphore`, `event_listener`) decide only if no function
//! outside of them in the same libraries does: a `Receiver` may wait in a semaphore. Each stack is looked up once, and
//! all new stacks of a generation together, because each look-up opens the program's debug information.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::hook;
use rtprof_runtime::stack::Stack;
use rtprof_tracer::generation::{Generation, Tables};
use rtprof_tracer::record::{Branches, DeclaredReasons, Record, StackId};

use rtprof_symbols::hash::AddressMap;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::path::in_crate;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

/// The activity of a task that awaits at a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It waits for something.
    Wait(WaitReason),
    /// It yields, and is woken right away.
    Yield,
}

/// The library whose future a task awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Library {
    #[default]
    Unknown,
    Tokio,
    Futures,
    AsyncIo,
    AsyncChannel,
    AsyncLock,
    Flume,
}

impl Library {
    pub(crate) const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Tokio,
        Self::Futures,
        Self::AsyncIo,
        Self::AsyncChannel,
        Self::AsyncLock,
        Self::Flume,
    ];

    /// Returns its name; empty if it is unknown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Tokio => "tokio",
            Self::Futures => "futures",
            Self::AsyncIo => "async-io",
            Self::AsyncChannel => "async-channel",
            Self::AsyncLock => "async-lock",
            Self::Flume => "flume",
        }
    }

    /// Returns the library with a module of the table.
    fn of_module(module: &str) -> Self {
        match module.split("::").next().unwrap_or_default() {
            "tokio" => Self::Tokio,
            "futures_channel" | "futures_util" | "futures_timer" => Self::Futures,
            "async_io" => Self::AsyncIo,
            "async_channel" => Self::AsyncChannel,
            "async_lock" | "event_listener" => Self::AsyncLock,
            "flume" => Self::Flume,
            _ => Self::Unknown,
        }
    }

    /// Returns the outermost library on a stack of these functions, starting at the leaf, before the program's own
    /// code.
    fn of_stack<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut library = Self::Unknown;
        for name in names.take(LOOKED_AT) {
            let row = TABLE.iter().find(|(module, _)| in_crate(name, module) || is_type_in(name, module));
            match row {
                Some((_, Not)) => {}
                Some((module, _)) => library = Self::of_module(module),
                None if LIBRARIES.iter().any(|library| in_crate(name, library)) => {}
                None if library == Self::Unknown => {}
                None => break,
            }
        }
        library
    }
}

/// A wait of a task, or its yield: what it is, in which library, and at which stack.
pub(crate) type ResolvedAwait = (Awaited, Library, StackId);

/// How many functions from the leaf are examined.
const LOOKED_AT: usize = 24;

/// How a row of the table decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decides {
    Awaited(Awaited),
    /// A channel: the first function in it whose name says whether it sends or receives decides.
    Channel,
    /// Decides if no other row does.
    Perhaps(WaitReason),
    /// Decides also for functions inside, because it is built on other primitives.
    Whole(WaitReason),
    /// Does not decide: it polls futures of the program, or belongs to several primitives.
    Not,
}

use Decides::{Channel, Not, Perhaps, Whole};

const fn wait(reason: WaitReason) -> Decides {
    Decides::Awaited(Awaited::Wait(reason))
}

/// Prefixes of module paths; the first match decides.
#[rustfmt::skip]
const TABLE: &[(&str, Decides)] = &[
    ("tokio::sync::barrier", Whole(WaitReason::Sync)),
    ("tokio::signal", Whole(WaitReason::Net)),
    ("tokio::process", Whole(WaitReason::Net)),
    ("tokio::time::timeout", Not),
    ("tokio::task::yield_now", Decides::Awaited(Awaited::Yield)),
    // Where the task's budget is exhausted.
    ("tokio::runtime::scheduler::defer", Decides::Awaited(Awaited::Yield)),
    ("tokio::runtime::io", wait(WaitReason::Net)),
    ("tokio::net", wait(WaitReason::Net)),
    ("tokio::io::async_fd", wait(WaitReason::Net)),
    ("tokio::io::poll_evented", wait(WaitReason::Net)),
    ("async_io::reactor::Reactor::insert_timer", wait(WaitReason::Sleep)),
    ("async_io::Timer", wait(WaitReason::Sleep)),
    ("async_io", wait(WaitReason::Net)),
    ("tokio::time", wait(WaitReason::Sleep)),
    ("tokio::runtime::time", wait(WaitReason::Sleep)),
    ("tokio::runtime::time_alt", wait(WaitReason::Sleep)),
    ("futures_timer", wait(WaitReason::Sleep)),
    ("tokio::sync::mpsc", Channel),
    ("tokio::sync::oneshot", Channel),
    ("tokio::sync::broadcast", Channel),
    ("tokio::sync::watch", Channel),
    ("futures_channel", Channel),
    ("async_channel", Channel),
    ("flume", Channel),
    ("tokio::sync::notify", Perhaps(WaitReason::CondWait)),
    ("tokio::sync::task", Not),
    ("tokio::sync", Perhaps(WaitReason::Sync)),
    ("event_listener", Perhaps(WaitReason::Sync)),
    ("event_listener_strategy", Not),
    ("async_lock", wait(WaitReason::Sync)),
    ("futures_util::lock", wait(WaitReason::Sync)),
    ("tokio::runtime::task", wait(WaitReason::Sync)),
];

/// Libraries whose functions may stand between a leaf and the primitive that it is a part of.
const LIBRARIES: [&str; 7] =
    ["core", "alloc", "std", "tokio", "futures_core", "futures_util", "rtprof_hooks"];

/// The result of a suspended poll.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SuspendedPoll {
    /// In the order in which the poll reached them, then 0.
    pub(crate) stacks: Branches,
    /// The reason that the program has announced without a stack.
    pub(crate) reason: WaitReason,
    pub(crate) declared: DeclaredReasons,
}

impl SuspendedPoll {
    /// Returns the announced reason of the stack at index `at`.
    fn declared(&self, at: usize) -> Option<Awaited> {
        self.declared.at(at).map(Awaited::Wait)
    }

    /// Returns what is known without names of functions, and at which stack.
    fn without_names(&self) -> (Awaited, StackId) {
        let declared =
            (0..self.stacks.len()).rev().find_map(|at| Some((self.declared(at)?, self.stacks[at])));
        declared.unwrap_or((UNKNOWN, last(&self.stacks)))
    }
}

const UNKNOWN: Awaited = Awaited::Wait(WaitReason::Await);

/// Results for known stacks.
#[derive(Default)]
pub(crate) struct AwaitedStacks {
    /// For polls that suspended at a single stack: what the task does.
    single: AddressMap<u32, (Awaited, Library)>,
    /// For several stacks: what the task does, and at which of them.
    several: HashMap<SuspendedPoll, ResolvedAwait>,
}

impl AwaitedStacks {
    /// Returns what a task waits for whose poll suspended at these stacks, and at which of them. If they are new, all
    /// new stacks of the generation are looked up.
    #[inline]
    pub(crate) fn of(
        &mut self,
        poll: SuspendedPoll,
        generation: &Generation<'_>,
        tables: &dyn Tables,
        view: View,
    ) -> ResolvedAwait {
        if let Some(known) = self.get(&poll) {
            return known;
        }
        self.learn(generation, tables, view);
        self.get(&poll).unwrap_or((UNKNOWN, Library::Unknown, last(&poll.stacks)))
    }

    #[inline]
    fn get(&self, poll: &SuspendedPoll) -> Option<ResolvedAwait> {
        match poll.stacks {
            [0, ..] => Some((Awaited::Wait(poll.reason), Library::Unknown, 0)),
            [stack, 0, ..] => {
                let declared = poll.declared(0).map(|declared| (declared, Library::Unknown));
                let found = declared.or_else(|| self.single.get(&stack).copied());
                found.map(|(awaited, library)| (awaited, library, stack))
            }
            _ => self.several.get(poll).copied(),
        }
    }

    fn note(&mut self, poll: SuspendedPoll, (awaited, library, at): ResolvedAwait) {
        match poll.stacks {
            [stack, 0, ..] => drop(self.single.insert(stack, (awaited, library))),
            _ => drop(self.several.insert(poll, (awaited, library, at))),
        }
    }

    #[cold]
    fn learn(&mut self, generation: &Generation<'_>, tables: &dyn Tables, view: View) {
        let _workspace = hook::workspace();
        let mut new = HashSet::new();
        for buffer in generation.lanes.iter().flat_map(|lane| &lane.buffers) {
            for (_, record) in buffer.records.clone() {
                if let Record::Await { reason, declared, stacks, .. } = record {
                    let poll = SuspendedPoll { stacks, reason, declared };
                    if self.get(&poll).is_none() {
                        new.insert(poll);
                    }
                }
            }
        }
        if view.symbolization == Symbolization::None {
            for poll in new {
                let (awaited, at) = poll.without_names();
                self.note(poll, (awaited, Library::Unknown, at));
            }
            return;
        }
        let mut locations = Locations::new(view);
        let single = new.iter().flat_map(|poll| poll.stacks).filter(|&stack| stack != 0);
        locations.prepare(single.map(|stack| tables.stack(stack)));
        for poll in new {
            let stacks = poll.stacks.iter().take_while(|&&stack| stack != 0);
            let paths: Vec<Path> = stacks.map(|&stack| path(&mut locations, tables.stack(stack))).collect();
            let (awaited, at) = decide(&paths, |at| poll.declared(at));
            let library = match (poll.declared(at), paths.get(at)) {
                (None, Some(path)) if awaited != Awaited::Wait(WaitReason::Select) => {
                    Library::of_stack(path.iter().map(|step| &*step.function))
                }
                _ => Library::Unknown,
            };
            self.note(poll, (awaited, library, poll.stacks[at]));
        }
    }
}

fn last(stacks: &Branches) -> StackId {
    stacks.iter().copied().rfind(|&stack| stack != 0).unwrap_or(0)
}

/// A function in a stack, and the point at which it calls the next.
#[derive(Clone, PartialEq, Eq)]
struct Step {
    function: Arc<str>,
    /// 0 when unknown.
    line: u32,
    /// The same for all functions that are inlined in each other at this point.
    address: usize,
}

/// The functions of a stack, starting at the leaf.
type Path = Vec<Step>;

fn path(locations: &mut Locations, stack: Stack<'_>) -> Path {
    let frames = locations.event(stack);
    let steps = frames.shown().flat_map(|(address, lines)| {
        lines.iter().map(|line| Step {
            function: line.function.name.clone(),
            line: line.line,
            address: address.return_address,
        })
    });
    steps.collect()
}

/// Decides what a task waits for whose poll suspended at these stacks, and at which of them it is shown. `declared` returns
/// the reasons that the program has announced for some of them.
///
/// An async function that continues in the middle of a poll leaves the stack of an await that is over, because a timer
/// registers its waker even when its time has come. So only those stacks count that part from the last one at a point
/// where several futures are awaited at once. A timer among them is a deadline. Of the rest the first one is shown,
/// because the others of a `timeout` are around it.
fn decide(paths: &[Path], declared: impl Fn(usize) -> Option<Awaited>) -> (Awaited, usize) {
    let Some((last, before)) = paths.split_last() else { return (UNKNOWN, 0) };
    let at_once = before.iter().rev().take_while(|path| are_awaited_at_once(path, last)).count();
    let from = before.len() - at_once;
    let of =
        |at: usize| declared(at).unwrap_or_else(|| awaited(paths[at].iter().map(|step| &*step.function)));
    let is_timer = |at: usize| of(at) == Awaited::Wait(WaitReason::Sleep);
    // In a program without symbols the announced reasons are the only information.
    let is_any_declared = (from..paths.len()).any(|at| declared(at).is_some());
    let is_unknown = |at: usize| is_any_declared && declared(at).is_none() && paths[at].is_empty();
    let mut waits = (from..paths.len()).filter(|&at| !is_timer(at) && !is_unknown(at));
    match (waits.next(), waits.next()) {
        (None, _) => (of(before.len()), before.len()),
        (Some(only), None) => (of(only), only),
        (Some(first), Some(_)) => (Awaited::Wait(WaitReason::Select), first),
    }
}

/// Whether two stacks of one poll part in a function that polls several futures: in any function except the body of an
/// async function, which polls one after the other. (`select!` and `join!` are closures that
/// [`PollFn`](core::future::PollFn) calls.) Without debug information a function that polls several futures may be
/// inlined in such a body without a trace, and is then treated as part of it.
fn are_awaited_at_once(one: &Path, other: &Path) -> bool {
    let pairs = || one.iter().rev().zip(other.iter().rev());
    let common = pairs().take_while(|(one, other)| one == other).count();
    let Some((here, there)) = pairs().nth(common).map(|(one, other)| (one.address, other.address)) else {
        return true;
    };
    let is_there = |(one, other): &(&Step, &Step)| (one.address, other.address) == (here, there);
    // Functions that are inlined there, and call at the same line: in a macro each branch has a separate address.
    let is_same_line =
        |(one, other): &(&Step, &Step)| one.function == other.function && one.line == other.line;
    let same = pairs().skip(common).take_while(|pair| is_there(pair) && is_same_line(pair)).count() + common;
    let is_left_here = |pair: (&Step, &Step)| is_there(&pair) && pair.0.function == pair.1.function;
    let at = if pairs().nth(same).is_some_and(is_left_here) { Some(same) } else { same.checked_sub(1) };
    let nth = |at: usize| one.iter().rev().nth(at);
    let Some((at, step)) = at.and_then(|at| Some((at, nth(at)?))) else { return false };
    let polls_several = |at: usize| {
        // Std's functions stand between closures that are called through references.
        let mut callers =
            (0..at).rev().filter_map(nth).filter(|step| !in_crate(&step.function, "core::ops::function"));
        let (caller, outer) = (callers.next(), callers.next());
        let is_polled = |step: Option<&Step>| step.is_some_and(|caller| is_poll_fn(&caller.function));
        // `futures::select!` has a closure for each branch, which are called by the closure that `PollFn` calls.
        let is_inside =
            |step: &Step| caller.is_some_and(|caller| is_inside(&step.function, &caller.function));
        is_polled(caller) || is_polled(outer) && nth(at).is_some_and(is_inside)
    };
    // Of the functions that are inlined there and call at the same line, each may be the one with two calls.
    !is_closure(&step.function) || step.line == 0 || (common.min(at)..=at).any(polls_several)
}

/// Whether a closure is defined in the body of a function.
fn is_inside(closure: &str, function: &str) -> bool {
    closure.strip_prefix(function).is_some_and(|rest| rest.starts_with("::{"))
}

/// Whether this is a closure, in either scheme of names: `f::{{closure}}`, `f::{closure#0}`.
fn is_closure(function: &str) -> bool {
    function.ends_with("{{closure}}") || function.ends_with('}') && function.contains("{closure#")
}

fn is_poll_fn(function: &str) -> bool {
    ["core::future::poll_fn", "futures_util::future::poll_fn"].iter().any(|module| in_crate(function, module))
}

/// Returns what a task waits for at a stack of these functions, starting at the leaf.
fn awaited<'a>(names: impl Iterator<Item = &'a str>) -> Awaited {
    let (mut decided, mut channel, mut perhaps) = (None, false, None);
    for name in names.take(LOOKED_AT) {
        let row = TABLE.iter().find(|(module, _)| in_crate(name, module) || is_type_in(name, module));
        match row.map(|&(_, decides)| decides) {
            Some(Whole(reason)) => return Awaited::Wait(reason),
            Some(Decides::Awaited(awaited)) if !channel => decided = decided.or(Some(awaited)),
            Some(Channel) => {
                channel = true;
                decided = decided.or_else(|| direction(name).map(Awaited::Wait));
            }
            Some(Perhaps(reason)) => perhaps = perhaps.or(Some(reason)),
            Some(Decides::Awaited(_) | Not) => {}
            None => {
                // The program's own code is not part of the primitive.
                let is_known = decided.is_some() || channel || perhaps.is_some();
                if is_known && !LIBRARIES.iter().any(|library| in_crate(name, library)) {
                    break;
                }
            }
        }
    }
    let default = if channel { WaitReason::ChanReceive } else { perhaps.unwrap_or(WaitReason::Await) };
    decided.unwrap_or(Awaited::Wait(default))
}

/// Whether a function is the item that the row names: `tokio::task::yield_now`, also as
/// `tokio::task::yield_now::yield_now`.
fn is_type_in(name: &str, module: &str) -> bool {
    name.trim_start_matches(['<', '&'])
        .strip_prefix(module)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '<', '>']))
}

/// Returns whether a function of a channel sends or receives, if its path shows that. Type arguments, which may be
/// channels too, are ignored.
fn direction(name: &str) -> Option<WaitReason> {
    let path = name.trim_start_matches(['<', '&']).split(['<', ' ', '>']).next().unwrap_or_default();
    let mut segments = path.split("::").skip(1);
    segments.find_map(|segment| {
        let is = |words: &[&str]| words.iter().any(|word| segment.contains(word));
        if is(&["Send", "send", "reserve", "closed"]) {
            Some(WaitReason::ChanSend)
        } else if is(&["Rec", "Rx", "rec", "changed", "next"]) {
            Some(WaitReason::ChanReceive)
        } else {
            None
        }
    })
}

#[cfg(test)]
#[path = "awaited_tests.rs"]
mod tests;
