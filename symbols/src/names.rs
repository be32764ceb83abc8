//! Function names for people.

use std::borrow::Cow;

use crate::brackets::{self, Qualified};
use crate::mangled;
use crate::path::in_crate;
use crate::source_path::Sources;

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

impl Name {
    /// Returns the [`short`] form. A function of an `impl` of the program for foreign types and traits, such as
    /// `<alloc::string::String as core::convert::From<app::Id>>::from`, is named after the module of the `impl`,
    /// `app::from`: its type alone would say that the standard library has done the work. (The old mangling has this
    /// form from the beginning.)
    pub(crate) fn short(&self) -> Cow<'_, str> {
        if let Some(Qualified { kind, of_trait: Some(of_trait), rest }) = Qualified::of(&self.full)
            && is_ours(bare_type(kind))
            && is_library(of_trait)
            && let Some(module) = mangled::module_of_impl(&self.system)
            && !is_our_crate(module.split("::").next().unwrap_or_default())
        {
            return format!("{module}{}", without_arguments(rest)).into();
        }
        short(&self.full)
    }
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
    if let Some(cut_off) = cut_off(name) {
        return short_of_cut_off(cut_off).into();
    }
    let Some(Qualified { kind, of_trait, rest }) = Qualified::of(name) else {
        return without_arguments(name);
    };
    let kind = bare_type(kind);
    let says_more = |of_trait: &&str| !is_path(kind) || is_ours(kind) && !is_library(of_trait);
    let path = of_trait.filter(says_more).unwrap_or(kind);
    let mut short = short(path);
    // `dyn for<'a> app::Reads<'a>`
    if path.starts_with("dyn for<") {
        short = short.replacen("dyn for ", "dyn ", 1).into();
    }
    format!("{short}{}", without_arguments(rest)).into()
}

/// What the demangler writes after a million bytes of a name.
const CUT_OFF: &str = "{size limit reached}";

/// Returns the text of a name that the demangler has cut off.
fn cut_off(name: &str) -> Option<&str> {
    // Few names are that long, and all are asked.
    let is_long = name.len() > 100_000;
    is_long.then(|| name.split_once(CUT_OFF))?.map(|(text, _)| text)
}

/// Shortens a name that ends anywhere: to the outermost path that is whole.
fn short_of_cut_off(name: &str) -> String {
    let path = bare_type(name.trim_start_matches('<'));
    brackets::without_arguments(path).0
}

/// Returns the type without references and pointers to it, and without lifetimes of a trait object.
fn bare_type(kind: &str) -> &str {
    let mut kind = kind;
    loop {
        let inner = kind.trim_start_matches(['&', '*']);
        let inner = inner.strip_prefix("mut ").or_else(|| inner.strip_prefix("const ")).unwrap_or(inner);
        // `&'a app::A`
        let inner = match inner.strip_prefix('\'').and_then(|rest| rest.split_once(' ')) {
            Some((_, rest)) if inner.len() < kind.len() => rest,
            _ => inner,
        };
        if inner.len() == kind.len() {
            return kind;
        }
        kind = inner;
    }
}

/// Whether a type is a path of at least two segments, or a trait object, not a tuple, slice or function of paths.
fn is_path(kind: &str) -> bool {
    let head = kind.split("::").next().unwrap_or(kind);
    head.len() < kind.len() && !head.contains(['(', '[', ' ']) || head.starts_with("dyn ")
}

fn is_our_crate(name: &str) -> bool {
    LIBRARY.contains(&name) || name == "lock_api" || name.starts_with("rtprof_")
}

const LIBRARY: [&str; 3] = ["alloc", "core", "std"];

fn is_library(path: &str) -> bool {
    LIBRARY.iter().any(|krate| in_crate(path, krate))
}

/// Whether a type is the standard library's or ours, or an object of such a trait.
fn is_ours(kind: &str) -> bool {
    let path = kind.strip_prefix("dyn ").unwrap_or(kind);
    let path =
        path.strip_prefix("for<").and_then(|rest| rest.split_once("> ")).map_or(path, |(_, path)| path);
    path.trim_start_matches(['<', '&']).split_once("::").is_some_and(|(krate, _)| is_our_crate(krate))
}

/// Removes the text in angle brackets, with the colons before it.
fn without_arguments(name: &str) -> Cow<'_, str> {
    match brackets::without_arguments(name) {
        (short, true) => short.into(),
        // A name of another language, whose brackets mean something else.
        (_, false) => name.into(),
    }
}

/// Completes the bare name of an inlined function.
///
/// With `debug = "line-tables-only"` the compiler keeps only the last segment of an inlined function's name,
/// `with_capacity_in<u8, alloc::alloc::Global>`, and a profile merges it with every other function of that name. The
/// source file shows crate and module: `alloc::raw_vec::with_capacity_in`. The type of a method cannot be recovered.
/// Type arguments, often hundreds of characters, stay in the system name only.
///
/// A folder may have another name than its crate; `home`, if known, has the crate's name.
pub(crate) fn qualify(
    bare: &str,
    file: Option<&str>,
    home: Option<&Home<'_>>,
    sources: &Sources<'_>,
) -> Name {
    let head = bare.split('<').next().unwrap_or(bare);
    let full = if head.is_empty() || head.contains("::") {
        bare.to_owned()
    } else if head.starts_with("__") {
        // The allocator's entry points belong to no module, whichever file the compiler names.
        head.to_owned()
    } else {
        match file.and_then(|file| sources.module_of(file)) {
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
    pub(crate) fn of(full_name: &'a str, file: &'a str, sources: &Sources<'_>) -> Option<Self> {
        let path = full_name.strip_prefix('<').unwrap_or(full_name);
        let (crate_name, _) = path.split_once("::")?;
        let is_name = crate_name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !is_name || full_name.contains(" as ") || sources.is_library(file) {
            return None;
        }
        let end = file.rfind("/src/")? + "/src/".len();
        Some(Self { sources: &file[..end], crate_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_path::Roots;

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
            ("<rtprof_hooks::inner::barrier::Barrier as app::Ext>::f", "app::Ext::f"),
            ("<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend", "alloc::vec::Vec::extend"),
            ("<unfinished", "<unfinished"),
            ("unfinished<T", "unfinished<T"),
            ("<fn(u8) -> alloc::string::String as app::Handler>::handle", "app::Handler::handle"),
            ("<fn(u8) .> alloc::string::String as app::Handler>::handle", "app::Handler::handle"),
            ("<app::Separated<'>'>>::join", "app::Separated::join"),
            ("<app::Named<\"<\"> as app::T>::f", "app::Named::f"),
            ("<&'a mut &app::A<'a> as app::T>::f", "app::A::f"),
            ("<dyn for<'a> app::Reads<'a> as app::T>::f", "dyn app::Reads::f"),
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
    fn impls_for_foreign_types_belong_to_their_module() {
        for (mangled, shown) in [
            (
                "_RNvXs_NtCs1_3app3idsNtNtCs8_5alloc6string6StringINtNtCs2_4core7convert4FromNtB4_2IdE4from",
                "app::ids::from",
            ),
            (
                "_RNCNvXs_NtCs1_3app3idsNtNtCs8_5alloc6string6StringINtNtCs2_4core7convert4FromNtB5_2IdE4from0",
                "app::ids::from::{closure#0}",
            ),
            (
                "_ZN3app3ids91_$LT$impl$u20$core..convert..From$LT$app..ids..Id$GT$$u20$for$u20$alloc..string..String\
                 $GT$4from17h0123456789abcdefE",
                "app::ids::from",
            ),
            // The standard library's.
            (
                "_RNvXs_NtCs8_5alloc6stringNtB4_6StringINtNtCs2_4core7convert4FromReE4from",
                "alloc::string::String::from",
            ),
        ] {
            assert_eq!(demangle(mangled).short(), shown, "{mangled}");
        }
    }

    /// Formats a number above 0 as references of the new mangling do.
    fn base_62(number: usize) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut rest = number - 1;
        let mut digits = Vec::new();
        loop {
            digits.insert(0, DIGITS[rest % 62]);
            rest /= 62;
            if rest == 0 {
                return String::from_utf8(digits).unwrap() + "_";
            }
        }
    }

    #[test]
    fn names_without_end_are_cut_at_a_path() {
        // `app::f::<(((u32, u32), (u32, u32)), ..)>`: each level refers to the one inside.
        let levels = 26;
        let before = "INvC3app1f";
        let references: String =
            (0..levels).rev().map(|level| format!("B{}E", base_62(before.len() + level + 1))).collect();
        let doubled = demangle(&format!("_R{before}{}m{references}E", "T".repeat(levels)));
        assert!(doubled.full.len() > 900_000 && doubled.full.ends_with(CUT_OFF), "{}", doubled.full.len());
        assert_eq!(doubled.short(), "app::f");
        for (name, shown) in [
            (format!("app::f::<{}", "u8, ".repeat(50_000)), "app::f"),
            (format!("<app::Huge<{}", "u8, ".repeat(50_000)), "app::Huge"),
            (format!("<<app::Huge<{}", "<u8, ".repeat(50_000)), "app::Huge"),
            (format!("<&mut app::Huge<{}", "u8, ".repeat(50_000)), "app::Huge"),
        ] {
            assert_eq!(short(&(name + CUT_OFF)), shown);
        }
    }

    #[test]
    fn foreign_names_stay() {
        let name = demangle("_Z3fooi");
        assert_eq!((name.full.as_str(), name.system.as_str()), ("_Z3fooi", "_Z3fooi"));
    }

    #[test]
    fn a_crate_in_a_folder_of_another_name() {
        let sources = Sources::new(&Roots::default);
        let home_of = |name, file| Home::of(name, file, &sources);
        let home = home_of("<svc::Pool>::submit", "/tmp/user-app/src/main.rs").unwrap();
        let named = |bare, file| qualify(bare, Some(file), Some(&home), &sources).full;
        assert_eq!(named("run<u8>", "/tmp/user-app/src/main.rs"), "svc::run");
        assert_eq!(named("get", "/tmp/user-app/src/cache/lru.rs"), "svc::cache::lru::get");
        assert_eq!(named("get", "/tmp/other/src/cache.rs"), "other::cache::get");
        assert!(home_of("<svc::A as lib::B>::c", "/tmp/lib/src/lib.rs").is_none());
        assert!(home_of("alloc::vec::push", "/rustc/1/library/alloc/src/vec/mod.rs").is_none());
    }

    #[test]
    fn bare_names_get_their_module() {
        let sources = Sources::new(&Roots::default);
        let named = |bare, file| qualify(bare, file, None, &sources);
        let file = "/rustc/59807616e/library/alloc/src/raw_vec/mod.rs";
        assert_eq!(named("with_capacity_in<u8>", Some(file)).full, "alloc::raw_vec::with_capacity_in");
        // A path among the type arguments does not make the name complete.
        assert_eq!(named("push<std::path::PathBuf>", Some(file)).full, "alloc::raw_vec::push");
        assert_eq!(named("a::b", Some(file)).full, "a::b");
        assert_eq!(named("b", None).full, "b");
        assert_eq!(named("__rust_alloc", Some("/home/u/app/src/main.rs")).full, "__rust_alloc");
        assert_eq!(named("b<u8>", None), Name { full: "b".into(), system: "b<u8>".into() });
    }
}

#[cfg(test)]
#[path = "names_property_tests.rs"]
mod property_tests;
