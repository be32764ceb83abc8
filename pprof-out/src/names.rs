//! Function names for people.

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

/// Completes the bare name of an inlined function.
///
/// With `debug = "line-tables-only"` the compiler keeps of an inlined function only the last segment of its
/// name, `with_capacity_in<u8, alloc::alloc::Global>`, which merges in a profile with every other function of that
/// name. The file it stands in tells crate and module: `alloc::raw_vec::with_capacity_in`. The type it is a method
/// of cannot be had back. Type arguments, often hundreds of characters, are left to the system name.
pub(crate) fn qualify(bare: &str, file: Option<&str>) -> Name {
    let head = bare.split('<').next().unwrap_or(bare);
    let shown = if head.is_empty() || head.contains("::") {
        bare.to_owned()
    } else if head.starts_with("__") {
        // The allocator's entry points belong to no module, whichever file the compiler ascribes them to.
        head.to_owned()
    } else {
        match file.and_then(source_path::module_of) {
            Some(module) => format!("{module}::{head}"),
            None => head.to_owned(),
        }
    };
    Name { shown, system: bare.to_owned() }
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
    fn foreign_names_stay() {
        let name = demangle("_Z3fooi");
        assert_eq!((name.shown.as_str(), name.system.as_str()), ("_Z3fooi", "_Z3fooi"));
    }

    #[test]
    fn bare_names_get_their_module() {
        let file = "/rustc/59807616e/library/alloc/src/raw_vec/mod.rs";
        assert_eq!(qualify("with_capacity_in<u8>", Some(file)).shown, "alloc::raw_vec::with_capacity_in");
        // A path among the type arguments does not make the name complete.
        assert_eq!(qualify("push<std::path::PathBuf>", Some(file)).shown, "alloc::raw_vec::push");
        assert_eq!(qualify("a::b", Some(file)).shown, "a::b");
        assert_eq!(qualify("b", None).shown, "b");
        assert_eq!(qualify("__rust_alloc", Some("/home/u/app/src/main.rs")).shown, "__rust_alloc");
        assert_eq!(qualify("b<u8>", None), Name { shown: "b".into(), system: "b<u8>".into() });
    }
}
