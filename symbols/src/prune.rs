//! Hides the machinery between the program's code and the allocator, or the hooks in its locks and threads.
//!
//! Without it every heap profile would have the same leaf everywhere. The leaf end of a stack is hidden: first
//! everything down to the rootmost entry into the allocator, because all frames beneath that run inside the allocator;
//! then the thin layers over it (`alloc::alloc`, `RawVec`, `Box::new`); and then the standard containers (`Vec::push`,
//! `String::from`, `HashMap::insert`) and our channels, up to the function that used them. So the flat value of a
//! function is what it allocated, and the line shows by which call, just as Go counts `append` for the function that
//! calls it. A stack of containers alone keeps them.
//!
//! A wait is different. Its machinery (`hook_names`) runs the program's closures, so there is no rootmost entry: only a
//! contiguous part at the leaf is hidden, the hooks first, then the functions of the standard library between them and
//! the program (`drop_in_place`, `LocalKey::with`). An allocator's frames stay visible. An allocator waits only where a
//! program's own allocator takes a lock, and then it is the waiting code.
//!
//! A location may contain inlined machinery and the function into which it was inlined, so the cut falls between lines,
//! not between addresses.

use crate::brackets::last_segment;
use crate::hook_names;
use crate::mangled;
use crate::path::{in_crate, is_in_a_crate};
use crate::source_path::Sources;

/// The role of a function for the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// An entry into the allocator, or a function inside: hidden with all that it called.
    Entry,
    /// A layer over the allocator: hidden if only hidden frames lie beneath.
    Layer,
    /// The standard library's containers and glue: hidden in the same way, if a frame of other code follows.
    Container,
    /// Locks, channels and threads: a layer over a wait, but a container over an allocation.
    Hook,
    /// The rest of the standard library: a container over a wait, but shown over an allocation.
    Library,
    /// A replacement of one of the C library's functions: hidden at the leaf of a wait.
    Interposed,
    /// The outermost function of such a replacement, which goes by the name of the call.
    Call,
    /// The function of ours that makes a system call for a replacement.
    Kernel,
    /// A replacement of the C library's function that creates a thread: hidden at the leaf, with the library's functions
    /// over it.
    Creation,
    /// A function that makes a system call for a lock: hidden if only interposed functions lie beneath.
    SystemCall,
    /// Our layer for the spans of the crate tracing: hidden at the leaf, as [`Hook`](Self::Hook) is.
    Spans,
    /// The crate tracing: hidden over our layer. Elsewhere it is shown; its writers allocate and have locks.
    Dispatch,
    /// Shown.
    Shown,
}

/// Where a function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In the standard library, or in the hash table crate that it is built with.
    Library,
    Elsewhere,
    Unknown,
}

/// The crates that are the standard library.
const LIBRARY_CRATES: [&str; 4] = ["alloc", "core", "hashbrown", "std"];

impl Origin {
    /// Tells it by the linker's name and the source file, which is empty when unknown.
    pub(crate) fn of(system_name: &str, file: &str, sources: &Sources<'_>) -> Self {
        let krate = mangled::crate_of(system_name);
        if krate.is_some_and(|krate| !LIBRARY_CRATES.contains(&krate)) {
            Self::Elsewhere
        } else if file.is_empty() {
            Self::Unknown
        } else if sources.is_library(file) || krate.is_some() && !sources.know_library() {
            Self::Library
        } else {
            // A crate of the program that is called `core`, if the name says otherwise.
            Self::Elsewhere
        }
    }
}

/// The kind of machinery at the leaf of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machinery {
    /// The stack allocated.
    Allocator,
    /// The stack waited, made others wait, or created a thread.
    Hooks,
}

impl Machinery {
    /// Whether the class is hidden if only hidden frames lie beneath.
    fn is_layer(self, class: Class) -> bool {
        match self {
            Self::Allocator => matches!(class, Class::Entry | Class::Layer),
            Self::Hooks => matches!(class, Class::Layer | Class::Hook | Class::SystemCall | Class::Spans),
        }
    }

    /// Whether the class is hidden in the same way, if a frame of other code follows. Layers also occur among the glue:
    /// a container over another one, a lock in a thread-local.
    fn is_glue(self, class: Class) -> bool {
        self.is_layer(class)
            || match self {
                Self::Allocator => matches!(class, Class::Container | Class::Hook | Class::Spans),
                Self::Hooks => matches!(class, Class::Container | Class::Library),
            }
    }
}

/// The pattern for heap profiles that are symbolized elsewhere. A reader drops a match *and all that it called*, so
/// only functions that never call back into the program may match.
pub const DROP_FRAMES: &str = concat!(
    r"(__rustc::)?__(rust|rg|rdl)_(alloc|alloc_zeroed|realloc|dealloc)",
    r"|<?rtprof_allocator::(prof_alloc|sampled|pool|slab|large)::.*",
    r"|<.* as core::alloc::global::GlobalAlloc>::.*",
    r"|alloc::alloc::(alloc|alloc_zeroed|realloc|exchange_malloc)",
    r"|<?alloc::alloc::Global.*>?::(alloc_impl|alloc_impl_runtime|grow_impl|grow_impl_runtime|allocate|allocate_zeroed|grow|grow_zeroed|shrink)",
    r"|<?alloc::raw_vec::.*",
    // `go tool pprof` knows only the last segment of a name. These are our own functions and the library's.
    r"|alloc_sampled|decide_and_alloc|track_large|finish_grow|do_reserve_and_handle|try_allocate_in|exchange_malloc",
);

/// Returns the class of a function by its demangled name, of either mangling scheme.
///
/// The name alone does not distinguish the library's code from the program's: `<alloc::vec::Vec<u8> as app::Ext>::grow`
/// and `<&app::Matrix as core::ops::Add>::add` are the program's. So a hidden function must have its origin in the
/// library; of functions of unknown origin only the layers are hidden, whose names no other code has.
///
/// `inlines_known` says whether inlined functions of its address are known: without them a container's function may
/// contain inlined code of the program, and is shown.
pub(crate) fn classify(name: &str, origin: Origin, inlines_known: bool) -> Class {
    let is_library = origin == Origin::Library;
    if is_entry(name) {
        Class::Entry
    } else if is_own(name) || is_layer(name) && origin != Origin::Elsewhere {
        Class::Layer
    } else if inlines_known && is_library && is_container(name) {
        Class::Container
    } else if hook_names::is_interposed_creation(name) {
        Class::Creation
    } else if hook_names::is_interposed(name) {
        match hook_names::call_name(name) {
            Some(_) => Class::Call,
            None if hook_names::makes_system_call(name) => Class::Kernel,
            None => Class::Interposed,
        }
    } else if hook_names::is_system_call(name) {
        Class::SystemCall
    } else if hook_names::is_span_layer(name) {
        Class::Spans
    } else if inlines_known && hook_names::is_dispatch(name) {
        Class::Dispatch
    } else if hook_names::is_hook(name, inlines_known) {
        Class::Hook
    } else if inlines_known && is_library && in_crate(name, "std")
        || origin != Origin::Elsewhere && hook_names::is_spawn(name)
        || name == "__rust_try"
    {
        Class::Library
    } else {
        Class::Shown
    }
}

/// Crates and modules whose frames stand between the program and its memory.
const CONTAINERS: [&str; 8] = [
    "alloc::",
    "core::",
    "hashbrown::",
    "std::collections::",
    "std::ffi::",
    "std::hash::",
    "std::path::",
    "std::sys::os_str::",
];

fn is_container(name: &str) -> bool {
    let is_theirs = |path: &str| CONTAINERS.iter().any(|prefix| path.starts_with(prefix));
    let Some(inside) = name.strip_prefix('<') else { return is_theirs(name) };
    // `<Type as Trait>::method` belongs to its type. If the type belongs to no crate (a slice, a reference, the `T` of
    // the old mangling), the function is the library's, because it stands in a file of the library.
    !is_in_a_crate(inside) || is_theirs(inside)
}

fn is_entry(name: &str) -> bool {
    let symbol = name.strip_prefix("__rustc::").unwrap_or(name);
    ["__rust_alloc", "__rust_realloc", "__rust_no_alloc_shim", "__rg_", "__rdl_"]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
        || in_crate(name, "rtprof_allocator") && !is_sweep(name)
        || name.starts_with('<') && name.contains(" as core::alloc::global::GlobalAlloc>::")
}

/// Whether this is a function of ours that does not run the program's code.
fn is_own(name: &str) -> bool {
    in_crate(name, "rtprof_profiler")
        || in_crate(name, "rtprof_runtime") && !name.contains("rtprof_runtime::labels::")
}

/// Whether this is a function like `collector::sweep`, which runs the program's code, and that code may allocate.
fn is_sweep(name: &str) -> bool {
    name.contains("rtprof_allocator::collector::")
}

fn is_layer(name: &str) -> bool {
    // `<alloc::raw_vec::RawVec<u8>>::grow_one` in the new scheme, `alloc::raw_vec::RawVec<T,A>::grow_one` in the old,
    // `alloc::raw_vec::grow_one` where the module is known only from the file.
    let path = name.trim_start_matches('<');
    if ["alloc::alloc::", "alloc::raw_vec::", "core::alloc::", "allocator_api2::", "hashbrown::alloc::"]
        .iter()
        .any(|module| path.starts_with(module))
        || path.starts_with("hashbrown::raw::alloc::")
        || name.contains(" as core::alloc::Allocator>::")
        || name.contains(" as allocator_api2::")
    {
        return true;
    }
    match path.strip_prefix("alloc::boxed::") {
        Some(_) => matches!(last_segment(name), Some(method) if is_boxing(method)),
        None => false,
    }
}

fn is_boxing(method: &str) -> bool {
    method.starts_with("new") || method.starts_with("try_new") || method.starts_with("box_new")
}

/// The point where the visible part of a stack begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Addresses that are hidden completely.
    pub frames: usize,
    /// Lines of the next address that are hidden, innermost first.
    pub(crate) lines: usize,
}

impl Cut {
    pub(crate) const NONE: Self = Self { frames: 0, lines: 0 };
}

/// Returns how many lines of an address an entry into the allocator hides: the outermost entry and the lines inside it.
pub(crate) fn entry_lines(classes: &[Class]) -> usize {
    classes.iter().rposition(|&class| class == Class::Entry).map_or(0, |line| line + 1)
}

/// Finds the cut of a stack of `frames` addresses, leaf first. `entry` is the rootmost address with [`entry_lines`], if
/// it hides all beneath it. `classes` returns the classes of an address's lines, innermost first, and none for an
/// address without symbols. Something always remains: the outermost line, if the whole stack is machinery.
pub(crate) fn cut<'a>(
    machinery: Machinery,
    frames: usize,
    entry: Option<usize>,
    classes: impl Fn(usize) -> &'a [Class],
) -> Cut {
    let cut = match entry {
        Some(frame) => Cut { frames: frame, lines: entry_lines(classes(frame)) },
        None => Cut::NONE,
    };
    if machinery == Machinery::Hooks
        && let Some(beyond) = beyond_gate(frames, &classes)
    {
        return beyond;
    }
    let hide = |mut cut: Cut, is_hidden: fn(Machinery, Class) -> bool| {
        while cut.frames < frames {
            let lines = classes(cut.frames);
            while cut.lines < lines.len() && is_hidden(machinery, lines[cut.lines]) {
                cut.lines += 1;
            }
            if cut.lines < lines.len() || lines.is_empty() {
                return Some(cut);
            }
            cut = Cut { frames: cut.frames + 1, lines: 0 };
        }
        None
    };
    if let Some(beneath) = hide(cut, Machinery::is_layer) {
        return hide(beneath, Machinery::is_glue).unwrap_or(beneath);
    }
    match frames.checked_sub(1) {
        Some(last) => Cut { frames: last, lines: classes(last).len().saturating_sub(1) },
        None => Cut::NONE,
    }
}

/// Finds the cut of a stack that came to the hooks through a gate: an interposed function, or our layer for spans. It
/// hides the gate and what lies beneath it, and of the other code's functions over it:
///
/// - those that make the system call of a lock. The functions of the lock name it, and stay visible;
/// - those of the crate tracing, between the span and our layer;
/// - the standard library's, between the program's function and the creation of a thread.
fn beyond_gate<'a>(frames: usize, classes: &impl Fn(usize) -> &'a [Class]) -> Option<Cut> {
    let lines = (0..frames).flat_map(|frame| {
        let classes = classes(frame);
        // An address without symbols counts as one line, of an unknown class.
        (0..classes.len().max(1)).map(move |line| (frame, line, classes.get(line).copied()))
    });
    let mut gate = None;
    // Where the other code begins, unless more of the gate follows: the gate's closures are called by the hooks, and by the
    // library.
    let mut beyond = None;
    for (frame, line, class) in lines {
        let here = Cut { frames: frame, lines: line };
        match (gate, class) {
            (None, Some(Class::Interposed | Class::Call | Class::Kernel)) => gate = Some(Class::Interposed),
            (None, Some(Class::Creation | Class::Spans)) => gate = class,
            // A closure of ours within the function that creates threads.
            (Some(Class::Interposed), Some(Class::Creation)) => (gate, beyond) = (class, None),
            // Callees of the gate: the recording, closures. Not the program's code, which may be a signal handler.
            (None, Some(Class::Layer | Class::Hook | Class::Container | Class::Library)) => {}
            (Some(Class::Interposed), Some(Class::Interposed | Class::Call | Class::Kernel)) => beyond = None,
            (Some(Class::Interposed), Some(Class::SystemCall)) if beyond.is_none() => {}
            (
                Some(Class::Interposed),
                Some(Class::Layer | Class::Hook | Class::Container | Class::Library),
            ) => {
                beyond = beyond.or(Some(here));
            }
            (Some(Class::Creation), Some(Class::Creation | Class::Container | Class::Library)) => {}
            (
                Some(Class::Spans),
                Some(Class::Spans | Class::Dispatch | Class::Layer | Class::Container | Class::Library),
            ) => {}
            _ => return gate.map(|_| beyond.unwrap_or(here)),
        }
    }
    beyond
}

/// Finds the cut of a stack whose thread is in the kernel, or in the C library, for an interposed function: all beneath
/// the function that goes by the name of the call. `None` for other stacks, and if the thread executes code of ours: a
/// reader must see the time that rtprof takes. `is_foreign` says whether an address lies in another file than rtprof.
pub(crate) fn call_cut<'a>(
    frames: usize,
    classes: impl Fn(usize) -> &'a [Class],
    is_foreign: impl Fn(usize) -> bool,
) -> Option<Cut> {
    let in_c_library = (0..frames).take(MOST_IN_C_LIBRARY).take_while(|frame| is_foreign(*frame)).count();
    let first = classes((in_c_library < frames).then_some(in_c_library)?);
    if in_c_library == 0 && first.first() != Some(&Class::Kernel) {
        return None;
    }
    let mut call = None;
    for frame in in_c_library..frames {
        for (line, class) in classes(frame).iter().enumerate() {
            match class {
                Class::Call => call = Some(Cut { frames: frame, lines: line }),
                Class::Interposed | Class::Kernel => {}
                // Our closures are called by functions of the library. Other code of ours calls the C library for itself.
                Class::Library | Class::Container if call.is_none() => {}
                _ => return call,
            }
        }
    }
    call
}

/// The most functions of the C library between one of ours and the kernel.
const MOST_IN_C_LIBRARY: usize = 6;

/// Hides `skip` more lines, as a caller requested; an address without symbols counts as one line.
pub(crate) fn skip_lines(
    mut cut: Cut,
    mut skip: usize,
    frames: usize,
    lines_of: impl Fn(usize) -> usize,
) -> Cut {
    while skip > 0 && cut.frames < frames {
        let lines = lines_of(cut.frames).max(1);
        let left = lines - cut.lines;
        let is_last = cut.frames + 1 == frames;
        if skip < left {
            cut.lines += skip;
            return cut;
        }
        if is_last {
            cut.lines = lines - 1;
            return cut;
        }
        skip -= left;
        cut = Cut { frames: cut.frames + 1, lines: 0 };
    }
    cut
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
