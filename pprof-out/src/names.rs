//! Function names for people.

use std::borrow::Cow;

use crate::source_path;

/// The name of a function in two forms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Demangled, without the compiler's hash.
    pub(crate) shown: String,
    /// As the linker knows it.
    pub(crate) system: String,
}

/// Demangles a linker's name. Names that are not Rust's stay as they are: pprof demangles C++ itself when
/// both forms are the same.
pub(crate) fn demangle(mangled: &str) -> Name {
    // Linkers and the optimizer append `.llvm.1234`, `.cold` and the like.
    let shown = match rustc_demangle::try_demangle(mangled) {
        Ok(name) => format!("{name:#}"),
        Err(_) => mangled.to_owned(),
    };
    Name { shown, system: mangled.to_owned() }
}

/// Whether the linker would know a function by this name, rather than only the source text.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_ZN")
}

/// A name that does not begin with a bracket: `<A as B>::c` is `A::c`, as is `<A>::c`.
///
/// `go tool trace` makes profiles of functions that have but one name, and `go tool pprof` removes what stands in angle
/// brackets from such: of these nothing would be left but `::c`.
pub(crate) fn without_leading_bracket(name: &str) -> Cow<'_, str> {
    let Some(inner) = name.strip_prefix('<') else { return name.into() };
    let mut depth = 0u32;
    let mut end_of_type = None;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            // The arrow of a function type is no bracket.
            b'>' if inner[..at].ends_with('-') => {}
            b'>' if depth == 0 => {
                let kind = &inner[..end_of_type.unwrap_or(at)];
                let kind = kind.trim_start_matches(['&', '*']).trim_start_matches("mut ");
                return format!("{}{}", without_leading_bracket(kind), &inner[at + 1..]).into();
            }
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && inner[at..].starts_with(" as ") => end_of_type = end_of_type.or(Some(at)),
            _ => {}
        }
    }
    name.into()
}

/// Completes the bare name of an inlined function.
///
/// With `debug = "line-tables-only"` the compiler keeps of an inlined function only the last segment of its
/// name, `with_capacity_in<u8, alloc::alloc::Global>`, which merges in a profile with every other function of that
/// name. The file it stands in tells crate and module: `alloc::raw_vec::with_capacity_in`. The type it is a method
/// of cannot be had back. Type arguments, often hundreds of characters, are left to the system name.
///
/// A folder may bear another name than its crate; `home`, where known, has the right one.
pub(crate) fn qualify(bare: &str, file: Option<&str>, home: Option<&Home<'_>>) -> Name {
    let head = bare.split('<').next().unwrap_or(bare);
    let shown = if head.is_empty() || head.contains("::") {
        bare.to_owned()
    } else if head.starts_with("__") {
        // The allocator's entry points belong to no module, whichever file the compiler ascribes them to.
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
    Name { shown, system: bare.to_owned() }
}

/// Where a crate's sources lie.
pub(crate) struct Home<'a> {
    sources: &'a str,
    crate_name: &'a str,
}

impl<'a> Home<'a> {
    /// Learns it from a function whose full name and file are known. Not from methods of traits, which may
    /// stand in another crate than their type.
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
            demangle("_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE").shown,
            "alloc::raw_vec::RawVec<T,A>::grow_one"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo").shown, "mycrate::foo");
        assert_eq!(demangle("_RNvCsdUAHz2Gkhv9_7___rustc12___rust_alloc").shown, "__rustc::__rust_alloc");
    }

    #[test]
    fn names_that_begin_with_a_type() {
        for (name, shown) in [
            ("app::main", "app::main"),
            ("<std::thread::Thread>::new::start", "std::thread::Thread::new::start"),
            ("<app::A<u8> as core::fmt::Debug>::fmt", "app::A<u8>::fmt"),
            ("<&mut app::A as T>::f", "app::A::f"),
            ("<<app::A as B>::C as D>::e", "app::A::C::e"),
            ("<fn() -> u8 as FnOnce<()>>::call_once", "fn() -> u8::call_once"),
            ("<[T] as Sort>::sort", "[T]::sort"),
            ("<unfinished", "<unfinished"),
        ] {
            assert_eq!(without_leading_bracket(name), shown);
        }
    }

    #[test]
    fn foreign_names_stay() {
        let name = demangle("_Z3fooi");
        assert_eq!((name.shown.as_str(), name.system.as_str()), ("_Z3fooi", "_Z3fooi"));
    }

    #[test]
    fn a_crate_in_a_folder_of_another_name() {
        let home = Home::of("<svc::Pool>::submit", "/tmp/user-app/src/main.rs").unwrap();
        let named = |bare, file| qualify(bare, Some(file), Some(&home)).shown;
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
            qualify("with_capacity_in<u8>", Some(file), None).shown,
            "alloc::raw_vec::with_capacity_in"
        );
        // A path among the type arguments does not make the name complete.
        assert_eq!(qualify("push<std::path::PathBuf>", Some(file), None).shown, "alloc::raw_vec::push");
        assert_eq!(qualify("a::b", Some(file), None).shown, "a::b");
        assert_eq!(qualify("b", None, None).shown, "b");
        assert_eq!(qualify("__rust_alloc", Some("/home/u/app/src/main.rs"), None).shown, "__rust_alloc");
        assert_eq!(qualify("b<u8>", None, None), Name { shown: "b".into(), system: "b<u8>".into() });
    }
}
