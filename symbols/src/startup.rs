//! Hides std's functions between the beginning of a thread and the program's first function.
//!
//! Problem: below every function of the program lie a dozen frames of std, `catch_unwind` twice over, which carry no
//! information and push the relevant ones off the top of a flame graph. Std's short backtraces omit them.
//! Scheme: std runs the program's function, and nothing else, from `__rust_begin_short_backtrace`. So if a stack has
//! this marker and, further out, the thread's first function, all functions between the two are std's, whatever their
//! names:
//!
//! ```text
//!   leaf …  app::serve  app::main │ call_once  __rust_begin_short_backtrace  …  lang_start    │ main
//!   leaf …  app::worker           │ call_once  __rust_begin_short_backtrace  …  thread_start  │ thread start
//!                                   hidden
//! ```
//!
//! The functions through which the marker calls the program's closure are hidden with it: `FnOnce::call_once`, and our
//! own closure around that of a thread. In a stack of a thread without the marker, as of one that C has made or of std's own work
//! after the program's function, only the thread's first functions and those that call a closure for them are hidden. Other
//! stacks without both markers are shown unchanged.
//!
//! The stack of an async task begins with the function that polls it, which is both markers in one:
//!
//! ```text
//!   leaf …  app::inner::{closure}  app::outer::{closure} │ Instrumented::poll::{closure}  run::call  poll_task
//!                                                          hidden
//! ```
//!
//! As at the leaf (`prune`), inlined functions share an address with those into which they were inlined, so the ends
//! fall between lines.

use crate::brackets::last_segment;
use crate::hook_names;
use crate::path::in_crate;
use crate::prune::Cut;

/// The name shown for a thread's first function where its frames are hidden.
pub const THREAD_START: &str = "thread start";

/// The most addresses outside std's outermost function: `main`, and in a static program the C library's functions,
/// which cannot be told from others there.
const BEYOND: usize = 5;

/// The most addresses between the markers: 14 in a debug build.
const BETWEEN: usize = 40;

/// The role of one line in the start of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineRole {
    /// The C function `main`, which calls std.
    Main,
    /// `lang_start`, which `main` calls.
    MainStart,
    /// The first function of a thread.
    ThreadStart,
    /// `__rust_begin_short_backtrace`.
    Marker,
    /// The function that polls a task.
    TaskStart,
    /// A function that calls the program's closure.
    Glue,
    Other,
}

fn role_of(name: &str, inlines_known: bool) -> LineRole {
    if name == "main" {
        return LineRole::Main;
    }
    if name == hook_names::TASK_START {
        return LineRole::TaskStart;
    }
    if hook_names::is_interposed_start(name) {
        return LineRole::ThreadStart;
    }
    if in_crate(name, "std") {
        match last_segment(name) {
            Some("lang_start" | "lang_start_internal") => return LineRole::MainStart,
            Some("thread_start") => return LineRole::ThreadStart,
            Some("__rust_begin_short_backtrace") => return LineRole::Marker,
            _ => {}
        }
    }
    // Without known inlined functions it may contain the program's closure.
    let is_glue =
        inlines_known && (is_library(name) && last_segment(name) == Some("call_once") || is_ours(name));
    if is_glue { LineRole::Glue } else { LineRole::Other }
}

/// Whether this is the library's `FnOnce::call_once`, by any path: of the trait, a `Box`, an `AssertUnwindSafe`. That
/// of the program's closure has the closure's own name.
fn is_library(name: &str) -> bool {
    ["alloc", "core", "std"].iter().any(|krate| in_crate(name, krate))
}

fn is_ours(name: &str) -> bool {
    hook_names::is_thread_start(name) || hook_names::is_task_start(name)
}

/// The role of an address in the start of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Startup {
    /// If the address has a first function: how many lines are hidden.
    outer: Option<(u32, Beginning)>,
    /// If it has the first function of a thread: how many of its lines are shown in a stack without std's marker.
    before_start: Option<u32>,
    /// How many of its lines are shown in a stack with std's marker at this address.
    before_marker: Option<u32>,
    /// How many are shown if the marker is further out, and this address calls the program's closure.
    before_glue: Option<u32>,
}

/// The kind of start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Main,
    Thread,
    Task,
}

impl Startup {
    /// The role of an address with these functions, innermost first, given by their names without type arguments.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>, inlines_known: bool) -> Self {
        let mut startup = Self::default();
        // The first line that is hidden together with a marker, if one follows.
        let mut glue = 0;
        for (line, name) in (0..).zip(names) {
            let role = role_of(name, inlines_known);
            match role {
                // `main` itself is shown.
                LineRole::Main => startup.outer = Some((line, Beginning::Main)),
                LineRole::MainStart => startup.outer = Some((line + 1, Beginning::Main)),
                LineRole::ThreadStart => {
                    startup.outer = Some((line + 1, Beginning::Thread));
                    startup.before_start = Some(glue);
                }
                LineRole::Marker => startup.before_marker = Some(glue),
                LineRole::TaskStart => {
                    startup.outer = Some((line + 1, Beginning::Task));
                    startup.before_marker = Some(glue);
                }
                LineRole::Glue | LineRole::Other => {}
            }
            if role != LineRole::Glue {
                glue = line + 1;
            }
            startup.before_glue = (role == LineRole::Glue).then_some(glue);
        }
        startup
    }

    /// Returns how many of its lines are shown in a stack that begins with start-up code; `None` for all.
    pub(crate) fn lines_shown(self) -> Option<usize> {
        self.before_marker.or(self.before_glue).map(|lines| lines as usize)
    }

    /// Whether the address is the first function of a thread.
    pub(crate) fn is_thread_start(self) -> bool {
        matches!(self.outer, Some((_, Beginning::Thread)))
    }
}

/// The part of a stack that is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// The innermost address of which lines are hidden, and how many of its lines are shown.
    pub(crate) from: (usize, usize),
    /// The outermost address of which lines are hidden, and how many of its lines are hidden.
    pub(crate) to: (usize, usize),
    /// Whether the outermost address is shown as [`THREAD_START`], with none of its lines.
    pub(crate) is_thread: bool,
    /// Whether the stack is a task's; nothing further out is shown then.
    pub(crate) is_task: bool,
}

impl Hidden {
    /// Whether anything remains visible of a stack of `len` addresses, where `lines` returns the number of lines of an
    /// address.
    pub(crate) fn leaves_any(self, len: usize, lines: impl Fn(usize) -> usize) -> bool {
        let (end, hidden) = self.to;
        self.is_thread || end + 1 < len || hidden < lines(end) || self.is_task && self.from > (0, 0)
    }

    /// Whether anything remains visible of a stack of which `cut` is hidden at its leaf.
    pub(crate) fn leaves_any_after(self, cut: Cut) -> bool {
        !self.is_task || (cut.frames, cut.lines) < self.from
    }

    /// Returns the same range in a stack with `more` additional addresses at its leaf.
    pub(crate) fn after(self, more: usize) -> Self {
        Self { from: (self.from.0 + more, self.from.1), to: (self.to.0 + more, self.to.1), ..self }
    }

    /// Returns the same range in a stack without `fewer` addresses at its leaf, all of which are shown.
    pub(crate) fn before(self, fewer: usize) -> Self {
        Self { from: (self.from.0 - fewer, self.from.1), to: (self.to.0 - fewer, self.to.1), ..self }
    }
}

/// Finds the hidden range of a stack of `len` addresses, leaf first.
pub(crate) fn find(len: usize, at: impl Fn(usize) -> Startup) -> Option<Hidden> {
    let mut ends = (len.saturating_sub(BEYOND)..len).rev();
    let (end, (lines, beginning)) = ends.find_map(|frame| Some((frame, at(frame).outer?)))?;
    let nearest = end + usize::from(beginning == Beginning::Task);
    let mut markers = (end.saturating_sub(BETWEEN)..nearest).rev();
    let marker = markers.find_map(|frame| Some((frame, at(frame).before_marker?)));
    let (mut from, mut shown) = marker.or_else(|| Some((end, at(end).before_start?)))?;
    while shown == 0
        && let Some(inner) = from.checked_sub(1)
        // std's first function of a thread, which ours calls, is further in than ours.
        && let Some(before) = at(inner).before_glue.or(at(inner).before_start.filter(|_| marker.is_none()))
    {
        (from, shown) = (inner, before);
    }
    Some(Hidden {
        from: (from, shown as usize),
        to: (end, lines as usize),
        is_thread: beginning == Beginning::Thread,
        is_task: beginning == Beginning::Task,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the hidden range of a stack whose addresses have these functions, with or without debug information.
    fn hidden(stack: &[&[&str]], inlines_known: bool) -> Option<Hidden> {
        let all: Vec<_> =
            stack.iter().map(|lines| Startup::of(lines.iter().copied(), inlines_known)).collect();
        find(all.len(), |frame| all[frame])
    }

    const MARKER: &str = "std::sys::backtrace::__rust_begin_short_backtrace";
    const CALL: &str = "core::ops::function::FnOnce::call_once";
    const CATCH: &str = "std::panicking::catch_unwind";
    const AROUND: &str = "rtprof_hooks::thread::creator::Creator::around::{closure#0}";

    #[test]
    fn the_start_of_main() {
        let stack: &[&[&str]] = &[
            &["app::serve"],
            &["app::main"],
            &[CALL, MARKER],
            &["std::rt::lang_start::{closure#0}"],
            &[CATCH, CATCH, "std::rt::lang_start_internal"],
            &["std::rt::lang_start"],
            &["main"],
        ];
        let all = Hidden { from: (2, 0), to: (6, 0), is_thread: false, is_task: false };
        assert_eq!(hidden(stack, true), Some(all));
        // All functions inlined, or none.
        let inlined: &[&[&str]] = &[&["app::main", CALL, MARKER], &[CATCH, "std::rt::lang_start", "main"]];
        assert_eq!(
            hidden(inlined, true),
            Some(Hidden { from: (0, 1), to: (1, 2), is_thread: false, is_task: false })
        );
        let bare: &[&[&str]] =
            &[&["app::main"], &[CALL], &[CALL], &[MARKER], &["std::rt::lang_start_internal"], &["main"]];
        assert_eq!(hidden(bare, true), Some(Hidden { from: (1, 0), to: (5, 0), ..all }));
        // Without names of the functions that were inlined into `main`.
        let merged: &[&[&str]] = &[&["app::main"], &[CALL, MARKER], &["main"]];
        assert_eq!(hidden(merged, true), Some(Hidden { from: (1, 0), to: (2, 0), ..all }));
        // `call_once` may contain the program's closure.
        assert_eq!(hidden(bare, false).map(|hidden| hidden.from), Some((3, 0)));
    }

    #[test]
    fn the_start_of_a_thread() {
        let start = "std::sys::pal::unix::thread::Thread::new::thread_start";
        let stack: &[&[&str]] = &[
            &["app::worker", "app::main::{closure#0}", AROUND],
            &[MARKER],
            &["std::thread::Builder::spawn_unchecked_::{closure#1}"],
            &["alloc::boxed::Box::call_once", start],
        ];
        let all = Hidden { from: (0, 2), to: (3, 2), is_thread: true, is_task: false };
        assert_eq!(hidden(stack, true), Some(all));
        assert_eq!(hidden(stack, false).map(|hidden| hidden.from), Some((1, 0)));
        // What std does after the program's function.
        assert_eq!(hidden(&stack[2..], true), Some(Hidden { from: (1, 0), to: (1, 2), ..all }));
        // A marker without a first function: a stack that was truncated at its outer end.
        assert_eq!(hidden(&stack[..3], true), None);
        assert_eq!(hidden(&[], true), None);
    }

    #[test]
    fn the_start_of_a_thread_without_the_programs_function() {
        let start = "std::sys::thread::unix::Thread::new::thread_start";
        let ours = "rtprof_hooks::interpose::threads::thread_start";
        let drop = "std::thread::lifecycle::Packet::drop";
        let closure = "std::thread::lifecycle::spawn_unchecked::{closure#0}";
        let stack: &[&[&str]] = &[&[drop], &["core::mem::drop", closure], &[CALL], &[CALL, start], &[ours]];
        let all = Hidden { from: (2, 0), to: (4, 1), is_thread: true, is_task: false };
        assert_eq!(hidden(stack, true), Some(all));
        assert_eq!(hidden(stack, false).map(|hidden| hidden.from), Some((3, 1)));
        // Of a thread that C has made.
        assert_eq!(hidden(&[&["worker"], &[ours]], true), Some(Hidden { from: (1, 0), to: (1, 1), ..all }));
        assert_eq!(hidden(&[&[ours]], true), Some(Hidden { from: (0, 0), to: (0, 1), ..all }));
    }

    #[test]
    fn the_start_of_a_task() {
        let stack: &[&[&str]] = &[
            &["tokio::sync::notify::Notified::poll"],
            &[
                "app::inner::{closure#0}",
                "app::outer::{closure#0}",
                "rtprof_hooks::task::tracked::Tracked::poll::{closure#0}",
            ],
            &["rtprof_runtime::boundary::run::call"],
            &[hook_names::TASK_START],
        ];
        let all = Hidden { from: (1, 2), to: (3, 1), is_thread: false, is_task: true };
        assert_eq!(hidden(stack, true), Some(all));
        // Where inlined functions are not known, any of these may contain the program's.
        assert_eq!(hidden(stack, false).map(|hidden| hidden.from), Some((3, 0)));
        assert_eq!(hidden(&stack[..3], true), None, "without the boundary it is no task's");
    }

    #[test]
    fn the_programs_own_are_shown() {
        let stack: &[&[&str]] = &[
            // Called back by the program's own catch_unwind, closer to the leaf than std's.
            &["app::lang_start"],
            &[CATCH],
            &["app::__rust_begin_short_backtrace"],
            &["app::worker"],
            &[CALL],
            &[MARKER],
            &["std::rt::lang_start_internal"],
        ];
        assert_eq!(
            hidden(stack, true),
            Some(Hidden { from: (4, 0), to: (6, 1), is_thread: false, is_task: false })
        );
        assert_eq!(hidden(&[&[MARKER], &["app::thread_start"]], true), None);
        assert_eq!(hidden(&[&["app::main"], &["app::std::thread_start"]], true), None);
    }
}
