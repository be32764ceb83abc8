//! Hiding the machinery between the program's code and the allocator, or the hooks in its locks and threads.
//!
//! Without it every heap profile would have one and the same leaf. What goes is the leaf end of a stack:
//! everything down to the rootmost entry of the allocator, for whatever runs beneath that runs inside the
//! allocator, then the thin layers over it (`alloc::alloc`, `RawVec`, `Box::new`), and then the standard
//! containers (`Vec::push`, `String::from`, `HashMap::insert`) and our channels up to the function that used them:
//! the flat value of a function is what it allocated, and the line says with what, as Go counts `append` to the
//! function that calls it. A stack of containers alone keeps them.
//!
//! A wait is another matter. Its machinery (`hook_names`) runs the program's closures, so there is no rootmost
//! entry: only what lies at the leaf without a gap goes, the hooks first, then what the standard library has
//! between them and the program (`drop_in_place`, `LocalKey::with`). An allocator's frames stay. It waits only
//! where a program's own allocator takes a lock, and then it is the one who waits.
//!
//! A location may hold inlined machinery and the function it was inlined into, so the cut falls between
//! lines, not between addresses.

use crate::hook_names;
use crate::source_path;

/// What a function means for the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A way into the allocator, or inside: hidden with all that it called.
    Entry,
    /// A layer over the allocator: hidden where nothing but hidden frames lies beneath.
    Layer,
    /// The standard library's containers and glue: hidden likewise, if a frame of somebody else follows.
    Container,
    /// Locks, channels and threads: a layer over a wait, and as a container over an allocation.
    Hook,
    /// The rest of the standard library: as a container over a wait, shown beneath an allocation.
    Library,
    /// What stands in for the C library's functions: hidden at the leaf of a wait.
    Interposed,
    /// What makes a system call for a lock: hidden if nothing but interposed functions lies beneath.
    SystemCall,
    /// Shown.
    Shown,
}

/// Whose machinery lies at the leaf of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machinery {
    /// The stack allocated.
    Allocator,
    /// The stack waited, made others wait, or created a thread.
    Hooks,
}

impl Machinery {
    /// Hidden where nothing but hidden frames lies beneath.
    fn is_layer(self, class: Class) -> bool {
        match self {
            Self::Allocator => matches!(class, Class::Entry | Class::Layer),
            Self::Hooks => matches!(class, Class::Layer | Class::Hook | Class::SystemCall),
        }
    }

    /// Hidden likewise, if a frame of somebody else follows. Layers lie among the glue too: a container over
    /// another one, a lock in a thread-local.
    fn is_glue(self, class: Class) -> bool {
        self.is_layer(class)
            || match self {
                Self::Allocator => matches!(class, Class::Container | Class::Hook),
                Self::Hooks => matches!(class, Class::Container | Class::Library),
            }
    }
}

/// For heap profiles that are symbolized elsewhere. A reader drops a match *and all that it called*, so only
/// functions that never call back into the program may match.
pub const DROP_FRAMES: &str = concat!(
    r"(__rustc::)?__(rust|rg|rdl)_(alloc|alloc_zeroed|realloc|dealloc)",
    r"|<?rtprof_allocator::(prof_alloc|sampled|pool|slab|large)::.*",
    r"|<.* as core::alloc::global::GlobalAlloc>::.*",
    r"|alloc::alloc::(alloc|alloc_zeroed|realloc|exchange_malloc)",
    r"|<?alloc::alloc::Global.*>?::(alloc_impl|alloc_impl_runtime|grow_impl|grow_impl_runtime|allocate|allocate_zeroed|grow|grow_zeroed|shrink)",
    r"|<?alloc::raw_vec::.*",
    // `go tool pprof` knows only the last segment of a name. These are ours and the library's.
    r"|alloc_sampled|decide_and_alloc|track_large|finish_grow|do_reserve_and_handle|try_allocate_in|exchange_malloc",
);

/// The class of a function by its demangled name, of either mangling scheme.
///
/// `file` is the source file, empty when unknown. A name alone does not tell the library's code from the
/// program's: `<alloc::vec::Vec<u8> as app::Ext>::grow` and `<&app::Matrix as core::ops::Add>::add` are the
/// program's, and its folder may be called `core`. So what is hidden must stand in the library's own files;
/// of a function in an unknown file only the layers are hidden, whose names nobody else has.
///
/// `inlines_known` says that inlined functions of its address are known: without them a container's
/// function may have the program's own code in it, and is shown.
pub(crate) fn classify(name: &str, file: &str, inlines_known: bool) -> Class {
    let is_library = source_path::is_library(file);
    if is_entry(name) {
        Class::Entry
    } else if is_own(name) || is_layer(name) && (is_library || file.is_empty()) {
        Class::Layer
    } else if inlines_known && is_library && is_container(name) {
        Class::Container
    } else if hook_names::is_interposed(name) {
        Class::Interposed
    } else if hook_names::is_system_call(name) {
        Class::SystemCall
    } else if hook_names::is_hook(name, inlines_known) {
        Class::Hook
    } else if inlines_known && is_library && in_crate(name, "std") || name == "__rust_try" {
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
    // `<Type as Trait>::method` is its type's. Of a type of no crate (a slice, a reference, the `T` of the
    // old mangling) it is the library's, since it stands in a file of the library.
    !is_in_a_crate(inside) || is_theirs(inside)
}

/// A path of at least two segments.
fn is_in_a_crate(path: &str) -> bool {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    end > 0 && path[end..].starts_with("::")
}

fn is_entry(name: &str) -> bool {
    let symbol = name.strip_prefix("__rustc::").unwrap_or(name);
    ["__rust_alloc", "__rust_realloc", "__rust_no_alloc_shim", "__rg_", "__rdl_"]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
        || in_crate(name, "rtprof_allocator") && !is_sweep(name)
        || name.starts_with('<') && name.contains(" as core::alloc::global::GlobalAlloc>::")
}

/// Our own functions, but for those that run the program's code.
fn is_own(name: &str) -> bool {
    in_crate(name, "rtprof_profiler")
        || in_crate(name, "rtprof_runtime") && !name.contains("rtprof_runtime::labels::")
}

/// `collector::sweep` runs the program's code, which may allocate.
fn is_sweep(name: &str) -> bool {
    name.contains("rtprof_allocator::collector::")
}

fn is_layer(name: &str) -> bool {
    // `<alloc::raw_vec::RawVec<u8>>::grow_one` in the new scheme, `alloc::raw_vec::RawVec<T,A>::grow_one` in the
    // old, `alloc::raw_vec::grow_one` where only the file told the module.
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
        Some(_) => matches!(method(name), Some(method) if is_boxing(method)),
        None => false,
    }
}

fn is_boxing(method: &str) -> bool {
    method.starts_with("new") || method.starts_with("try_new") || method.starts_with("box_new")
}

/// `name` is a function of this crate, or a method of one of its types.
pub fn in_crate(name: &str, krate: &str) -> bool {
    name.trim_start_matches(['<', '&']).strip_prefix(krate).is_some_and(|rest| rest.starts_with("::"))
}

/// The last path segment, without type arguments: `new` of `<alloc::boxed::Box<a::B>>::new::<c::D>`.
pub(crate) fn method(name: &str) -> Option<&str> {
    let mut depth = 0i32;
    let mut end = name.len();
    let mut last = None;
    let bytes = name.as_bytes();
    for at in (0..bytes.len()).rev() {
        match bytes[at] {
            // The arrow of a function type is no bracket.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => {
                depth += 1;
            }
            b'<' => {
                depth -= 1;
                if depth == 0 {
                    end = at;
                }
            }
            b':' if depth == 0 && at > 0 && bytes[at - 1] == b':' => {
                let segment = &name[at + 1..end.max(at + 1)];
                if !segment.is_empty() {
                    last = Some(segment);
                    break;
                }
                end = at - 1;
            }
            _ => {}
        }
    }
    last
}

/// Where a stack begins after the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Addresses that are hidden altogether.
    pub frames: usize,
    /// Lines of the next address that are hidden, innermost first.
    pub(crate) lines: usize,
}

impl Cut {
    pub(crate) const NONE: Self = Self { frames: 0, lines: 0 };
}

/// How many lines of an address an entry into the allocator hides: the outermost entry and those before it.
pub(crate) fn entry_lines(classes: &[Class]) -> usize {
    classes.iter().rposition(|&class| class == Class::Entry).map_or(0, |line| line + 1)
}

/// Finds the cut of a stack of `frames` addresses, leaf first. `entry` is the rootmost address with
/// [`entry_lines`], if that hides all beneath it; `classes` gives the classes of an address's lines, innermost first, and none for an address
/// without symbols. Something always remains: of a stack that is machinery altogether its outermost line.
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
        && let Some(interposed) = interposed(frames, &classes)
    {
        return interposed;
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

/// The cut of a stack that has been in an interposed function: that one, and what has made the system call. The lock that
/// the thread waits for is somebody else's, whose functions say what it is, and are shown.
fn interposed<'a>(frames: usize, classes: &impl Fn(usize) -> &'a [Class]) -> Option<Cut> {
    let lines = (0..frames).flat_map(|frame| {
        let classes = classes(frame);
        // An address without symbols is one line, of an unknown class.
        (0..classes.len().max(1)).map(move |line| (frame, line, classes.get(line).copied()))
    });
    let mut is_interposed = false;
    for (frame, line, class) in lines {
        match class {
            Some(Class::Interposed) => is_interposed = true,
            // What it has called: the recording, closures. Not the program: that may be a signal handler.
            Some(Class::Layer | Class::Hook | Class::Container | Class::Library) if !is_interposed => {}
            Some(Class::SystemCall) if is_interposed => {}
            _ => return is_interposed.then_some(Cut { frames: frame, lines: line }),
        }
    }
    None
}

/// Hides `skip` more lines, as a caller asked; an address without symbols counts as one.
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
