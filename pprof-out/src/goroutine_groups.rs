//! `format=groups` of the goroutine profile: goroutines with equal stacks as one, the tasks first, for people.
//!
//! ```text
//! 141 goroutines: 13 tasks, 128 threads
//!
//! 1 task "GET /report" [sleep], blocks its thread: goroutine 31
//!     std::thread::sleep    library/std/src/thread/mod.rs:897
//!     app::report::export    /home/u/app/src/report.rs:12
//!     ..
//!
//! 12 tasks "GET /pay" [await, 9 s or less]: goroutines 727, 729, 731, ..
//!     app::orders::pay    /home/u/app/src/orders.rs:56
//! ```
//!
//! What stands first is what an engineer looks for: tasks whose thread waits, and so keeps other tasks waiting; then tasks,
//! the most frequent stack first; then threads; then the threads of rtprof.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use rtprof_profiler::GoroutineState;
use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::snapshot::{GoroutineKind, Recorded};
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::goroutine_dump;
use crate::goroutine_filter::{GoroutineFilter, Selection};
use crate::goroutine_state::{distinct_branches, own_stack, state};
use crate::sink::Sink;
use crate::snapshot::Snapshot;
use crate::text::{self, cut, quote};

/// The most numbers of goroutines that a group lists.
const LISTED: usize = 10;

/// What the goroutines of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key<'a> {
    rank: Rank,
    title: &'a str,
    state: GoroutineState,
    labels: LabelSetId,
    /// The stack as it is shown, and those of the branches.
    stacks: String,
}

/// The order of groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Rank {
    /// A task whose thread waits in a poll.
    Blocking,
    Task,
    Thread,
    /// A thread of rtprof.
    Own,
}

/// A group: its key, and its goroutines.
type Group<'a> = (Key<'a>, Vec<&'a Recorded>);

impl Snapshot {
    /// Writes goroutines with equal stacks as one, for people: first tasks whose thread waits, then the other tasks and the
    /// threads, the most frequent stack first. Other profiles are written as [`write_text`](Self::write_text) does.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_groups(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        match &self.goroutines {
            Some(each) => {
                let view = self.view(symbolization);
                write(each, &self.comments, view, self.filter.as_ref(), &mut Sink::new(&mut w))
            }
            None => self.write_text(w, symbolization),
        }
    }
}

fn write(
    each: &[Recorded],
    comments: &[String],
    view: View,
    filter: Option<&GoroutineFilter>,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut locations = goroutine_dump::locations(each, view);
    let groups = groups(each, filter, &mut locations);
    let mut text = String::new();
    summary(&mut text, each, groups.iter().map(|(_, members)| members.len()).sum());
    let mut bytes = Vec::new();
    for (key, members) in groups {
        head(&mut text, &key, &members);
        text.push_str(&key.stacks);
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    let comments = locations.comments(comments);
    if !comments.is_empty() {
        text.push('\n');
        text::comments(&mut text, &comments);
    }
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

fn summary(text: &mut String, each: &[Recorded], shown: usize) {
    let tasks = each.iter().filter(|goroutine| goroutine.kind == GoroutineKind::Task).count();
    let threads = each.len() - tasks;
    let _ = write!(text, "{} goroutines: {tasks} tasks, {threads} threads", each.len());
    if shown < each.len() {
        let _ = write!(text, "; {shown} of them are shown");
    }
    text.push('\n');
}

fn groups<'a>(
    each: &'a [Recorded],
    filter: Option<&GoroutineFilter>,
    locations: &mut Locations,
) -> Vec<Group<'a>> {
    let mut groups: HashMap<Key<'a>, Vec<&'a Recorded>> = HashMap::new();
    let mut selection = Selection::by(filter);
    for goroutine in each {
        let state = state(goroutine, locations);
        if !selection.has(goroutine, state, locations) {
            continue;
        }
        let rank = rank(goroutine, state);
        let title = match rank {
            Rank::Blocking | Rank::Task => goroutine.title(),
            Rank::Thread | Rank::Own => without_number(goroutine.title()),
        };
        let stacks = stacks(goroutine, rank, locations);
        let key = Key { rank, title, state, labels: goroutine.labels, stacks };
        groups.entry(key).or_default().push(goroutine);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, members)| (key.rank, Reverse(members.len()), members[0].id));
    groups
}

fn rank(goroutine: &Recorded, state: GoroutineState) -> Rank {
    let waits = matches!(state, GoroutineState::Waiting(_) | GoroutineState::Syscall);
    let may_block = goroutine.start.is_some_and(Start::may_block);
    let is_own = || labels::resolve(goroutine.labels).iter().any(|(key, _)| key == "rtprof");
    match goroutine.kind {
        GoroutineKind::Task if goroutine.thread_id != 0 && waits && !may_block => Rank::Blocking,
        GoroutineKind::Task => Rank::Task,
        _ if is_own() => Rank::Own,
        _ => Rank::Thread,
    }
}

/// Returns the name of a pool's threads: `shard-` of `shard-7`. A name that is a number is a name.
fn without_number(name: &str) -> &str {
    let pool = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if pool.is_empty() { name } else { pool }
}

fn head(text: &mut String, key: &Key<'_>, members: &[&Recorded]) {
    let count = members.len();
    let plural = if count == 1 { "" } else { "s" };
    let kind = if key.rank <= Rank::Task { "task" } else { "thread" };
    let _ = write!(text, "\n{count} {kind}{plural}");
    let title = members[0].title();
    if members.iter().any(|member| member.title() != title) {
        text.push(' ');
        quote(text, &format!("{}*", key.title));
    } else if !title.is_empty() {
        text.push(' ');
        quote(text, title);
    }
    let _ = write!(text, " [{}", key.state);
    let longest = members.iter().map(|member| member.waited()).max().unwrap_or_default();
    if longest >= Duration::from_secs(1) {
        let _ = write!(text, ", {} s{}", longest.as_secs(), if count == 1 { "" } else { " or less" });
    }
    text.push(']');
    goroutine_dump::labels(text, key.labels);
    if key.rank == Rank::Blocking {
        text.push_str(", blocks its thread");
    }
    if members.iter().all(|member| member.is_leaked) {
        text.push_str(", no waker is left");
    }
    let numbers: Vec<_> = members.iter().take(LISTED).map(|member| member.id.to_string()).collect();
    let rest = if count > LISTED { ", .." } else { "" };
    let _ = writeln!(text, ": goroutine{plural} {}{rest}", numbers.join(", "));
}

/// Returns the stack of a goroutine, and those of its branches, as they are shown.
fn stacks(goroutine: &Recorded, rank: Rank, locations: &mut Locations) -> String {
    let mut text = String::new();
    let stack = own_stack(goroutine);
    let is_hidden = locations.event(stack).is_empty();
    // A task without code of the program has a frame that says why. Of a pool's idle thread the state says enough.
    let frames = match rank {
        Rank::Blocking | Rank::Task if is_hidden => locations.event_from_leaf(stack),
        _ => locations.event(stack),
    };
    one_stack(&mut text, &frames);
    for branch in distinct_branches(goroutine, locations) {
        text.push_str("    and also:\n");
        one_stack(&mut text, &locations.event(branch));
    }
    text
}

fn one_stack(text: &mut String, frames: &Frames<'_>) {
    for (address, lines) in frames.shown() {
        if lines.is_empty() {
            let _ = writeln!(text, "\t{}", cut(&address.stand_in));
        }
        for line in lines {
            let _ = write!(text, "\t{}", cut(&line.function.name));
            if !line.function.file.is_empty() {
                let _ = write!(text, "\t{}:{}", cut(&line.function.file), line.line);
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_pools_threads_are_no_names() {
        for (name, pool) in [("shard-17", "shard-"), ("8080", "8080"), ("main", "main"), ("", "")] {
            assert_eq!(without_number(name), pool);
        }
    }
}
