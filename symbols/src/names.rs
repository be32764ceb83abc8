//! Function names for people.

use std::borrow::Cow;

use crate::prune::in_crate;
use crate::source_path;

/// The name of a function in two forms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Demangled, without the compiler's hash. Profiles show the [`short`] form.
    pub(crate) full: String,
    /// The linker's name.
    pub(crate) system: String,
}

/// Demangles a linker's name. Names that are not Rust's stay unchanged: pprof demangles C++ itself when both forms are
/// the same.
pub(crate) fn demangle(mangled: &str) -> Name {
    // Linkers and the optimizer append `.llvm.1234`, `.cold` and the like.
    let full = match rustc_demangle::try_demangle(mangled) {
        Ok(name) => format!("{name:#}"),
        Err(_) => mangled.to_owned(),
    };
    Name { full, system: mangled.to_owned() }
}

/// Whether this is a linker's name of a function, not only a name from the source text.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_ZN")
}

/// Shortens a demangled name to the form of profiles and traces, a path without type arguments: `Vec::push` for
/// `<Vec<u8>>::push`, `A::c` for `<A as B>::c`, `core::slice::sort` for `core::slice::<impl [T]>::sort`. If the type is
/// not a path, such as a reference or a type parameter, the trait is kept, which says more: `B::c` for `<T as B>::c`.
/// The same holds if the type is the standard library's or ours, and the trait is the program's: the function is then
/// the program's.
///
/// Type arguments in Rust take hundreds of characters, and a function is the same for all of them, as in Go. Besides,
/// `go tool trace` makes profiles of functions with only one name, and `go tool pprof` removes the text in angle
/// brackets from these names: only `::c` would be left of `<A as B>::c`, and the same function would have two names.
pub(crate) fn short(name: &str) -> Cow<'_, str> {
    if !name.contains('<') {
        return name.into();
    }
    let Some(inner) = name.strip_prefix('<') else { return without_arguments(name) };
    let mut end_of_type = None;
    let mut depth = 0u32;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            // The arrow of a function type is not a bracket.
            b'>' if inner[..at].ends_with('-') => {}
            b'>' if depth == 0 => {
                let (kind, of_trait) = match end_of_type {
                    Some(end) => (&inner[..end], Some(&inner[end + " as ".len()..at])),
                    None => (&inner[..at], None),
                };
                let kind = kind.trim_start_matches(['&', '*']);
                let kind = kind.strip_prefix("mut ").or_else(|| kind.strip_prefix("const ")).unwrap_or(kind);
                let says_more = |of_trait: &&str| !is_path(kind) || is_ours(kind) && !is_library(of_trait);
                let path = of_trait.filter(says_more).unwrap_or(kind);
                return format!("{}{}", short(path), without_arguments(&inner[at + 1..])).into();
            }
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && inner[at..].starts_with(" as ") => end_of_type = end_of_type.or(Some(at)),
            _ => {}
        }
    }
    name.into()
}

/// Whether a type is a path of at least two segments, not a tuple, slice or function of paths.
fn is_path(kind: &str) -> bool {
    let head = kind.split("::").next().unwrap_or(kind);
    head.len() < kind.len() && !head.contains(['(', '[', ' ']) || head.starts_with("dyn ")
}

fn is_library(path: &str) -> bool {
    ["alloc", "core", "std"].iter().any(|krate| in_crate(path, krate))
}

fn is_ours(path: &str) -> bool {
    is_library(path) || path.starts_with("rtprof_") || in_crate(path, "lock_api")
}

/// Removes the text in angle brackets, with the colons before it.
fn without_arguments(name: &str) -> Cow<'_, str> {
    let mut short = String::with_capacity(name.len());
    let mut depth = 0u32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => {
                if depth == 0 && short.ends_with("::") {
                    short.truncate(short.len() - "::".len());
                }
                depth += 1;
            }
            '>' if depth > 0 => depth -= u32::from(!name[..at].ends_with('-')),
            _ if depth == 0 => short.push(c),
            _ => {}
        }
    }
    if depth == 0 { short.into() } else { name.into() }
}

/// Completes the bare name of an inlined function.
///
/// With `debug = "line-tables-only"` the compiler keeps only the last segment of an inlined function's name,
/// `with_capacity_in<u8, alloc::alloc::Global>`, and a profile merges it with every other function of that name. The
/// source file shows crate and module: `alloc::raw_vec::with_capacity_in`. The type of a method cannot be recovered.
/// Type arguments, often hundreds of characters, stay in the system name only.
///
/// A folder may have another name than its crate; `home`, if known, has the crate's name.
pub(crate) fn qualify(bare: &str, file: Option<&str>, home: Option<&Home<'_>>) -> Name {
    let head = bare.split('<').next().unwrap_or(bare);
    let full = if head.is_empty() || head.contains("::") {
        bare.to_owned()
    } else if head.starts_with("__") {
        // The allocator's entry points belong to no module, whichever file the compiler names.
        head.to_owned()
    } else {
        match file.and_then(source_path::module_of) {
            Some(module) => match home.filter(|home| file.is_some_and(|f| f.starts_with(home.sources))) {
                Some(home) => {
                    let inner = module.split_once("::").map_or("", |(_, inner)| inner);
                    let colons = if inner.is_empty() { "" } else { "::" };
                    format!("{}{colons}{inner}::{head}", home.crate_name)
                }
                None => format!("{module}::{head}"),
            },
            None => head.to_owned(),
        }
    };
    Name { full, system: bare.to_owned() }
}

/// The folder of a crate's sources.
pub(crate) struct Home<'a> {
    sources: &'a str,
    crate_name: &'a str,
}

impl<'a> Home<'a> {
    /// Derives the folder from a function whose full name and file are known. Methods of traits are not used, because
    /// they may stand in another crate than their type.
    pub(crate) fn of(full_name: &'a str, file: &'a str) -> Option<Self> {
        let path = full_name.strip_prefix('<').unwrap_or(full_name);
        let (crate_name, _) = path.split_once("::")?;
        let is_name = crate_name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !is_name || full_name.contains(" as ") || source_path::is_library(file) {
            return None;
        }
        let end = file.rfind("/src/")? + "/src/".len();
        Some(Self { sources: &file[..end], crate_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangles_both_schemes_without_hash() {
        assert_eq!(
            demangle("_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE").full,
            "alloc::raw_vec::RawVec<T,A>::grow_one"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo").full, "mycrate::foo");
        assert_eq!(demangle("_RNvCsdUAHz2Gkhv9_7___rustc12___rust_alloc").full, "__rustc::__rust_alloc");
    }

    #[test]
    fn short_names() {
        for (name, shown) in [
            ("app::main", "app::main"),
            ("<std::thread::Thread>::new::start", "std::thread::Thread::new::start"),
            ("<app::A<u8> as core::fmt::Debug>::fmt", "app::A::fmt"),
            ("<&mut app::A as T>::f", "app::A::f"),
            ("<*const app::A as T>::f", "app::A::f"),
            ("<<app::A as B>::C as D>::e", "app::A::C::e"),
            ("<fn() -> u8 as FnOnce<()>>::call_once", "FnOnce::call_once"),
            ("<[T] as Sort>::sort", "Sort::sort"),
            ("<F as axum::Handler<T>>::call", "axum::Handler::call"),
            ("<&T as core::fmt::Debug>::fmt", "core::fmt::Debug::fmt"),
            ("<(app::A, u8) as app::B>::c", "app::B::c"),
            ("<dyn app::A as app::B>::c", "dyn app::A::c"),
            ("<str>::len", "str::len"),
            ("<alloc::vec::Vec<u8> as app::Ext<T>>::grow", "app::Ext::grow"),
            ("<rtprof_hooks::sync::barrier::Barrier as app::Ext>::f", "app::Ext::f"),
            ("<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend", "alloc::vec::Vec::extend"),
            ("<unfinished", "<unfinished"),
            ("unfinished<T", "unfinished<T"),
            ("app::f::<fn(u8) -> app::B<u8>, ()>::{closure#0}", "app::f::{closure#0}"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"),
            ("core::slice::<impl [T]>::sort", "core::slice::sort"),
            (
                "<alloc::boxed::Box<dyn Fn(u8) -> A<u8>> as core::ops::FnOnce<()>>::call_once",
                "alloc::boxed::Box::call_once",
            ),
            ("<app::A<u8>>::f::<app::B>", "app::A::f"),
            (
                "<<app::A>::f::{closure#0} as FnOnce<()>>::call_once::{shim:vtable#0}",
                "app::A::f::{closure#0}::call_once::{shim:vtable#0}",
            ),
        ] {
            assert_eq!(short(name), shown);
        }
    }

    #[test]
    fn foreign_names_stay() {
        let name = demangle("_Z3fooi");
        assert_eq!((name.full.as_str(), name.system.as_str()), ("_Z3fooi", "_Z3fooi"));
    }

    #[test]
    fn a_crate_in_a_folder_of_another_name() {
        let home = Home::of("<svc::Pool>::submit", "/tmp/user-app/src/main.rs").unwrap();
        let named = |bare, file| qualify(bare, Some(file), Some(&home)).full;
        assert_eq!(named("run<u8>", "/tmp/user-app/src/main.rs"), "svc::run");
        assert_eq!(named("get", "/tmp/user-app/src/cache/lru.rs"), "svc::cache::lru::get");
        assert_eq!(named("get", "/tmp/other/src/cache.rs"), "other::cache::get");
        assert!(Home::of("<svc::A as lib::B>::c", "/tmp/lib/src/lib.rs").is_none());
        assert!(Home::of("alloc::vec::push", "/rustc/1/library/alloc/src/vec/mod.rs").is_none());
    }

    #[test]
    fn bare_names_get_their_module() {
        let file = "/rustc/59807616e/library/alloc/src/raw_vec/mod.rs";
        assert_eq!(
            qualify("with_capacity_in<u8>", Some(file), None).full,
            "alloc::raw_vec::with_capacity_in"
        );
        // A path among the type arguments does not make the name complete.
        assert_eq!(qualify("push<std::path::PathBuf>", Some(file), None).full, "alloc::raw_vec::push");
        assert_eq!(qualify("a::b", Some(file), None).full, "a::b");
        assert_eq!(qualify("b", None, None).full, "b");
        assert_eq!(qualify("__rust_alloc", Some("/home/u/app/src/main.rs"), None).full, "__rust_alloc");
        assert_eq!(qualify("b<u8>", None, None), Name { full: "b".into(), system: "b<u8>".into() });
    }
}
