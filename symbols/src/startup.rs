//! Hiding what std runs between the beginning of a thread and the program's first function.
//!
//! Problem: below every function of the program lie a dozen frames of std, `catch_unwind` twice over, which say
//! nothing and push what counts off the top of a flame graph. Std leaves them out of its own short backtraces.
//! Scheme: std runs the program's function, and nothing else, from `__rust_begin_short_backtrace`. So where a stack has
//! this marker and, further out, the function that began it all, what lies between the two is std's, whatever it is
//! called:
//!
//! ```text
//!   leaf …  app::serve  app::main │ call_once  __rust_begin_short_backtrace  …  lang_start_internal  lang_start │ main
//!   leaf …  app::worker           │ call_once  __rust_begin_short_backtrace  …  call_once  thread_start         │ thread start
//!                                   hidden
//! ```
//!
//! With the marker goes what calls the program's closure for it: `FnOnce::call_once`, and our closure around that of a
//! thread. A stack without both markers, such as one of a thread that C has made, is shown as it is.
//!
//! The stack of an async task begins with the function that polls it, which is both:
//!
//! ```text
//!   leaf …  app::inner::{closure}  app::outer::{closure} │ Instrumented::poll::{closure}  run::call  poll_task
//!                                                          hidden
//! ```
//!
//! As with the leaf (`prune`), inlined functions share an address with those that they were inlined into, so the
//! ends fall between lines.

use crate::hook_names;
use crate::prune::{Cut, in_crate, method};

/// What a thread's first function is called where its frames are hidden.
pub const THREAD_START: &str = "thread start";

/// How many addresses may follow std's outermost function: `main`, and in a static program the C library's, which are
/// not told from others there.
const BEYOND: usize = 5;

/// The most addresses between the markers: 14 in a debug build.
const BETWEEN: usize = 40;

/// What one line means for the start of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The C library's idea of where a program begins, which calls std.
    Main,
    /// `lang_start`, which `main` calls.
    MainStart,
    /// The first function of a thread.
    ThreadStart,
    /// `__rust_begin_short_backtrace`.
    Marker,
    /// What polls a task.
    TaskStart,
    /// What calls the program's closure.
    Glue,
    Other,
}

fn part(name: &str, inlines_known: bool) -> Part {
    if name == "main" {
        return Part::Main;
    }
    if name == hook_names::TASK_START {
        return Part::TaskStart;
    }
    if hook_names::is_interposed_start(name) {
        return Part::ThreadStart;
    }
    if in_crate(name, "std") {
        match method(name) {
            Some("lang_start" | "lang_start_internal") => return Part::MainStart,
            Some("thread_start") => return Part::ThreadStart,
            Some("__rust_begin_short_backtrace") => return Part::Marker,
            _ => {}
        }
    }
    // Without inlined functions it may have the program's closure in it.
    let is_glue = inlines_known && (method(name) == Some("call_once") && is_library(name) || is_ours(name));
    if is_glue { Part::Glue } else { Part::Other }
}

/// `FnOnce::call_once`, by whatever path: of the trait, a `Box`, an `AssertUnwindSafe`. That of the program's closure has
/// the closure's own name.
fn is_library(name: &str) -> bool {
    ["alloc", "core", "std"].iter().any(|krate| in_crate(name, krate))
}

fn is_ours(name: &str) -> bool {
    hook_names::is_thread_start(name) || hook_names::is_task_start(name)
}

/// What an address means for the start of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Startup {
    /// If it has a function that begins everything: how many lines are hidden.
    outer: Option<(u32, Beginning)>,
    /// How many of its lines are shown in a stack that has std's marker here.
    before_marker: Option<u32>,
    /// How many are shown if the marker is further out, and this calls the program's closure.
    before_glue: Option<u32>,
}

/// Whose start it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Main,
    Thread,
    Task,
}

impl Startup {
    /// That of an address with these functions, innermost first, by their names without type arguments.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>, inlines_known: bool) -> Self {
        let mut startup = Self::default();
        // The first line of those that go with a marker, if one follows.
        let mut glue = 0;
        for (line, name) in (0..).zip(names) {
            let part = part(name, inlines_known);
            match part {
                // Itself it is shown.
                Part::Main => startup.outer = Some((line, Beginning::Main)),
                Part::MainStart => startup.outer = Some((line + 1, Beginning::Main)),
                Part::ThreadStart => startup.outer = Some((line + 1, Beginning::Thread)),
                Part::Marker => startup.before_marker = Some(glue),
                Part::TaskStart => {
                    startup.outer = Some((line + 1, Beginning::Task));
                    startup.before_marker = Some(glue);
                }
                Part::Glue | Part::Other => {}
            }
            if part != Part::Glue {
                glue = line + 1;
            }
            startup.before_glue = (part == Part::Glue).then_some(glue);
        }
        startup
    }

    /// How many of its lines are shown in a stack that begins with start-up code; `None` for all.
    pub(crate) fn lines_shown(self) -> Option<usize> {
        self.before_marker.or(self.before_glue).map(|lines| lines as usize)
    }

    /// Whether it is the first function of a thread.
    pub(crate) fn is_thread_start(self) -> bool {
        matches!(self.outer, Some((_, Beginning::Thread)))
    }
}

/// The part of a stack that is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// Where it begins: the innermost address of which lines are hidden, and how many of its lines are shown.
    pub(crate) from: (usize, usize),
    /// Where it ends: the outermost such address, and how many of its lines are hidden.
    pub(crate) to: (usize, usize),
    /// Whether the outermost address is shown as [`THREAD_START`], with none of its lines.
    pub(crate) is_thread: bool,
    /// Whether the stack is a task's, of which nothing further out is shown.
    pub(crate) is_task: bool,
}

impl Hidden {
    /// Whether anything of a stack of `len` addresses remains to be shown, of which `lines` tells how many lines one has.
    pub(crate) fn leaves_any(self, len: usize, lines: impl Fn(usize) -> usize) -> bool {
        let (end, hidden) = self.to;
        self.is_thread || end + 1 < len || hidden < lines(end) || self.is_task && self.from > (0, 0)
    }

    /// Whether anything remains of a stack of which this much is hidden at its leaf.
    pub(crate) fn leaves_any_after(self, cut: Cut) -> bool {
        !self.is_task || (cut.frames, cut.lines) < self.from
    }

    /// The same in a stack with so many more addresses at its leaf.
    pub(crate) fn after(self, more: usize) -> Self {
        Self { from: (self.from.0 + more, self.from.1), to: (self.to.0 + more, self.to.1), ..self }
    }

    /// The same in a stack without so many addresses at its leaf, all of which are shown.
    pub(crate) fn before(self, fewer: usize) -> Self {
        Self { from: (self.from.0 - fewer, self.from.1), to: (self.to.0 - fewer, self.to.1), ..self }
    }
}

/// Finds what is to be hidden of a stack of `len` addresses, leaf first.
pub(crate) fn find(len: usize, at: impl Fn(usize) -> Startup) -> Option<Hidden> {
    let mut ends = (len.saturating_sub(BEYOND)..len).rev();
    let (end, (lines, beginning)) = ends.find_map(|frame| Some((frame, at(frame).outer?)))?;
    let nearest = end + usize::from(beginning == Beginning::Task);
    let mut markers = (end.saturating_sub(BETWEEN)..nearest).rev();
    let (mut from, mut shown) = markers.find_map(|frame| Some((frame, at(frame).before_marker?)))?;
    while shown == 0
        && let Some(inner) = from.checked_sub(1)
        && let Some(before_glue) = at(inner).before_glue
    {
        (from, shown) = (inner, before_glue);
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

    /// Of a stack whose addresses have these functions, with or without debug information.
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
        // Everything inlined, or nothing.
        let inlined: &[&[&str]] = &[&["app::main", CALL, MARKER], &[CATCH, "std::rt::lang_start", "main"]];
        assert_eq!(
            hidden(inlined, true),
            Some(Hidden { from: (0, 1), to: (1, 2), is_thread: false, is_task: false })
        );
        let bare: &[&[&str]] =
            &[&["app::main"], &[CALL], &[CALL], &[MARKER], &["std::rt::lang_start_internal"], &["main"]];
        assert_eq!(hidden(bare, true), Some(Hidden { from: (1, 0), to: (5, 0), ..all }));
        // Without names for what was inlined into `main`.
        let merged: &[&[&str]] = &[&["app::main"], &[CALL, MARKER], &["main"]];
        assert_eq!(hidden(merged, true), Some(Hidden { from: (1, 0), to: (2, 0), ..all }));
        // `call_once` may be the program's closure.
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
        // Before the closure there is no marker, and nothing to hide.
        assert_eq!(hidden(&stack[2..], true), None);
        // A marker without a beginning: a stack that was cut off at its outer end.
        assert_eq!(hidden(&stack[..3], true), None);
        assert_eq!(hidden(&[], true), None);
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
        // Where inlined functions are not known, any of these may have the program's in it.
        assert_eq!(hidden(stack, false).map(|hidden| hidden.from), Some((3, 0)));
        assert_eq!(hidden(&stack[..3], true), None, "without the boundary it is no task's");
    }

    #[test]
    fn the_programs_own_are_shown() {
        let stack: &[&[&str]] = &[
            // Called back by the program's own catch_unwind, deeper than std's.
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
