//! `debug=2` of the goroutine profile: every goroutine by itself, in the form that a Go program prints when it panics.
//!
//! ```text
//! # goroutine 7: thread 4711 "worker-2" {shard: 3, tenant: a}, polls goroutine 9
//!
//! goroutine 7 [chan receive, 3 minutes]:
//! app::queue::take(...)
//!     /home/u/app/src/queue.rs:31 +0x9d
//! app::worker(...)
//!     /home/u/app/src/main.rs:12 +0x41
//! created by app::main in goroutine 1
//!     /home/u/app/src/main.rs:40 +0x1b2
//! ```
//!
//! Readers of Go's form reject a goroutine whose header has a part that Go's headers lack, and skip lines between
//! goroutines. So three things stand in such a line: the name, what the kernel says of a thread without a stack, and
//! the labels. Go has the labels at the end of the header since 1.27, but older readers reject them there. A text must
//! begin with a header, so the line about the first goroutine comes after it. Functions have three dots in place of
//! arguments, as Go writes where it does not know them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::iter;

use rtprof_profiler::GoroutineState;
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::start::Start;
use rtprof_runtime::hook;
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::modules;
use rtprof_runtime::snapshot;
use rtprof_runtime::snapshot::{GoroutineKind, Recorded};
use rtprof_runtime::stack::Stack;

use crate::goroutine_filter::{GoroutineFilter, Selection};
use crate::goroutine_state::{distinct_branches, kernel_state, own_stack, plain, state};
use crate::sink::Sink;
use crate::snapshot::Snapshot;
use crate::text::{self, cut, quote};
use rtprof_symbols::frames::Address;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbol_cache::Line;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

impl Snapshot {
    /// Writes each goroutine by itself, in the form that a Go program prints when it panics; other profiles as
    /// [`write_text`](Self::write_text) does. Go: `debug=2`.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_dump(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
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

/// Writes all goroutines. Go: `writeGoroutineStacks`.
fn write(
    each: &[Recorded],
    comments: &[String],
    view: View,
    filter: Option<&GoroutineFilter>,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut locations = locations(each, view);
    let mut text = String::new();
    let mut bytes = Vec::new();
    let mut number = 0;
    let mut selection = Selection::by(filter);
    for goroutine in each {
        let state = state(goroutine, &mut locations);
        if !selection.has(goroutine, state, &mut locations) {
            continue;
        }
        one_of_all(&mut text, number, goroutine, &mut locations);
        number += 1;
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    let comments = locations.comments(comments);
    if number == 0 {
        text.push_str("# no goroutine is like that\n");
    }
    if !comments.is_empty() {
        text.push('\n');
        text::comments(&mut text, &comments);
    }
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

/// Returns the stack of the current goroutine, or of all, the current one first, in the form that a Go program prints
/// when it panics. Go: `runtime.Stack`.
///
/// The names of functions are looked up as for a profile: the first call takes tens of milliseconds in a large program.
pub fn stack(all: bool) -> String {
    if all {
        snapshot::request();
    }
    let text = {
        let _workspace = hook::workspace();
        let mut each: Vec<Recorded> = snapshot::take();
        if !all {
            let own = goroutine::current_id();
            each.retain(|goroutine| goroutine.id == own);
        }
        let mut locations = locations(&each, View::default());
        let mut text = String::new();
        for (number, goroutine) in each.iter().enumerate() {
            if all {
                one_of_all(&mut text, number, goroutine, &mut locations);
            } else {
                one(&mut text, goroutine, &mut locations);
            }
        }
        text
    };
    // Copied where allocations are tracked, because the text belongs to the caller.
    text.as_str().to_owned()
}

/// Returns locations with the addresses of all stacks prepared.
pub(crate) fn locations(each: &[Recorded], view: View) -> Locations {
    let mut locations = Locations::new(view);
    let stacks = each.iter().flat_map(|goroutine| {
        let own = Stack { addresses: &goroutine.stack, span: goroutine.span };
        iter::once(own).chain(goroutine.branches.iter().copied()).chain(goroutine.created_by)
    });
    locations.prepare(stacks);
    locations
}

/// Writes a goroutine, with the line about its thread before it, or after it for the first goroutine.
fn one_of_all(text: &mut String, number: usize, goroutine: &Recorded, locations: &mut Locations) {
    if number == 0 {
        one(text, goroutine, locations);
        text.push('\n');
        about(text, goroutine);
    } else {
        text.push('\n');
        about(text, goroutine);
        text.push('\n');
        one(text, goroutine, locations);
    }
}

/// Writes `# goroutine 7: thread 4711 "worker-2" {shard: 3, tenant: a}, polls goroutine 9: D in io_schedule`, or
/// `# goroutine 9: task "app::serve", started at src/main.rs:31, polled 3 times, no waker is left`.
fn about(text: &mut String, goroutine: &Recorded) {
    let is_task = goroutine.kind == GoroutineKind::Task;
    let _ = match is_task {
        true => write!(text, "# goroutine {}: task", goroutine.id),
        false => write!(text, "# goroutine {}: thread {}", goroutine.id, goroutine.thread_id),
    };
    let name = goroutine.title();
    if !name.is_empty() {
        text.push(' ');
        quote(text, name);
    }
    labels(text, goroutine.labels);
    if is_task {
        if let Some(at) = goroutine.start.map(Start::at) {
            let _ = write!(text, ", started at {}:{}", cut(at.file()), at.line());
        }
        let times = if goroutine.polls == 1 { "time" } else { "times" };
        let _ = write!(text, ", polled {} {times}", goroutine.polls);
        if goroutine.is_leaked {
            text.push_str(", no waker is left");
        }
        if goroutine.thread_id != 0 {
            let _ = write!(text, ", on thread {}", goroutine.thread_id);
        }
    } else if let Some(innermost) = goroutine.polled.first() {
        let _ = write!(text, ", polls goroutine {innermost}");
    }
    if let Some(kernel) = &goroutine.kernel {
        let _ = write!(text, ": {}", kernel_state(kernel));
    }
    text.push('\n');
}

/// Writes ` {shard: 3, tenant: a}`, or nothing if there are no labels.
pub(crate) fn labels(text: &mut String, labels: LabelSetId) {
    let labels = labels::resolve(labels);
    if !labels.is_empty() {
        let pairs: Vec<String> =
            labels.iter().map(|(key, value)| format!("{}: {}", word(key), word(value))).collect();
        let _ = write!(text, " {{{}}}", cut(&pairs.join(", ")));
    }
}

fn one(text: &mut String, goroutine: &Recorded, locations: &mut Locations) {
    header(text, goroutine, state(goroutine, locations));
    frames(text, own_stack(goroutine), locations);
    created_by(text, goroutine, locations);
    for branch in distinct_branches(goroutine, locations) {
        // Readers of Go's form skip lines between goroutines.
        let _ = writeln!(text, "\n# goroutine {} awaits also:", goroutine.id);
        let mut lines = String::new();
        frames(&mut lines, branch, locations);
        lines.lines().for_each(|line| {
            let _ = writeln!(text, "# {line}");
        });
    }
}

fn frames(text: &mut String, stack: Stack<'_>, locations: &mut Locations) {
    for (address, lines) in locations.event(stack).shown() {
        if lines.is_empty() {
            let _ = writeln!(text, "{}(...)\n\t??:0 +0x0", place_in_file(address.return_address));
        }
        for line in lines {
            let _ = writeln!(text, "{}(...)", cut(&line.function.name));
            place(text, &line.function.file, line.line, address.symbols.offset);
        }
    }
}

/// Returns `libc.so.6+0x147b76` for an address without a known function; the offset is in the file's numbering.
fn place_in_file(address: usize) -> String {
    match modules::find(address - 1) {
        Some(module) => {
            let file = module.path.rsplit('/').next().unwrap_or_default();
            format!("{}+{:#x}", plain(file), address.wrapping_sub(module.bias))
        }
        None => format!("{address:#x}"),
    }
}

/// Writes `goroutine 7 [chan receive, 3 minutes]:`. As in Go, a wait of less than one minute has no minutes.
fn header(text: &mut String, goroutine: &Recorded, state: GoroutineState) {
    let _ = write!(text, "goroutine {} [{state}", goroutine.id);
    let minutes = goroutine.waited().as_secs() / 60;
    if minutes >= 1 {
        let _ = write!(text, ", {minutes} minutes");
    }
    text.push_str("]:\n");
}

/// Returns a key or a value of a label, quoted only where Go's runtime quotes it.
fn word(string: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_');
    if string.chars().all(is_plain) {
        return string.to_owned();
    }
    let mut text = String::new();
    quote(&mut text, string);
    text
}

/// Writes `created by app::main in goroutine 1`, and the line of the creation.
fn created_by(text: &mut String, goroutine: &Recorded, locations: &mut Locations) {
    let Some(stack) = goroutine.created_by else { return };
    let creator: Option<(&Address, &[Line])> = locations.event(stack).shown().next();
    let Some((address, lines)) = creator else { return };
    let line = lines.first();
    let _ = match line {
        Some(line) => write!(text, "created by {}", cut(&line.function.name)),
        None => write!(text, "created by {:#x}", address.return_address),
    };
    if goroutine.creator != 0 {
        let _ = write!(text, " in goroutine {}", goroutine.creator);
    }
    text.push('\n');
    let (file, number) = line.map_or(("", 0), |line| (&*line.function.file, line.line));
    let (file, number) = match goroutine.start.map(Start::at) {
        // The start's location is known even without debug information, which has the whole path.
        Some(at) => (if file.ends_with(at.file()) { file } else { at.file() }, at.line()),
        None => (file, number),
    };
    place(text, file, number, address.symbols.offset);
}

/// Writes `    /home/u/app/src/main.rs:12 +0x41`.
fn place(text: &mut String, file: &str, line: u32, offset: u64) {
    let file = if file.is_empty() { "??" } else { file };
    let _ = writeln!(text, "\t{}:{line} +{offset:#x}", cut(file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn headers_are_as_go_has_them() {
        let (end, ends) = mpsc::channel::<()>();
        let (here, is_here) = mpsc::channel();
        let body = move || {
            rtprof_profiler::init::open();
            let _labels = labels::set_labels(labels::labels(&[("a,b", "[1]"), ("c", "\n2"), ("ü", "x_1./")]));
            goroutine::current();
            here.send(()).unwrap();
            ends.recv().ok();
        };
        let thread = std::thread::Builder::new().name("a, \"b\"]\n".into()).spawn(body).unwrap();
        is_here.recv().unwrap();
        let text = stack(true);
        let mut parts = text.split("\n\n");
        let about = r#" "a, \"b\"]\n" {"a,b": "[1]", c: "\n2", "ü": x_1./}"#;
        assert!(parts.any(|part| part.starts_with("# goroutine ") && part.ends_with(about)), "{text}");
        let head = parts.next().and_then(|part| part.lines().next()).expect("it has a header");
        // The thread may not wait yet.
        assert!(head.ends_with(" [syscall]:") || head.ends_with(" [running]:"), "{head}");
        assert!(text.starts_with("goroutine "), "{text}");
        let own = stack(false);
        assert_eq!(own.matches("goroutine ").count(), 1, "{own}");
        let lines: Vec<_> = own.lines().collect();
        assert!(lines[0].contains("[running"), "{own}");
        // Functions and places alternate.
        for pair in lines[1..].chunks(2) {
            assert!(pair[0].ends_with("(...)"), "{own}");
            assert!(pair[1].starts_with('\t') && pair[1].contains(" +0x"), "{own}");
        }
        assert!(own.contains("goroutine_dump::tests::headers_are_as_go_has_them"), "{own}");
        drop(end);
        thread.join().unwrap();
    }
}
