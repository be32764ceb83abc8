//! Finds the crate and module of a source file.

/// Returns `alloc::raw_vec` for `/rustc/…/library/alloc/src/raw_vec/mod.rs`; `None` if the path shows no module.
///
/// A package from a registry or in a workspace gets the name of its folder. That is a guess, wrong for packages in a
/// folder with another name; file and line stand beside it in the profile.
pub(crate) fn module_of(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".rs")?;
    let (crate_name, inner) = match own_crate(stem) {
        Some(found) => found,
        None => split(stem)?,
    };
    let mut path = crate_name;
    let mut segments = inner.split('/').peekable();
    while let Some(segment) = segments.next() {
        let implied = segments.peek().is_none() && matches!(segment, "mod" | "lib" | "main");
        if !implied && !segment.is_empty() {
            path.push_str("::");
            path.push_str(segment);
        }
    }
    Some(path)
}

/// Whether a file belongs to the standard library, or to the hash table crate that it is built with, which programs
/// also use directly.
pub(crate) fn is_library(file: &str) -> bool {
    file.starts_with("/rustc/") && file.contains("/library/")
        || file.contains("/rustlib/src/rust/library/")
        // Debian's.
        || file.starts_with("/usr/src/rustc-") && file.contains("/library/")
        || file.starts_with("/rust/deps/")
        || file.contains("/registry/src/") && file.contains("/hashbrown-")
}

/// Recognizes a crate of this workspace: its folder has the package's name without `rtprof-`, and the facade's folder
/// is the workspace itself. The hiding of our own frames depends on it.
fn own_crate(stem: &str) -> Option<(String, &str)> {
    let root = env!("CARGO_MANIFEST_DIR").strip_suffix("/symbols")?;
    let (folder, inner) = stem.strip_prefix(root)?.strip_prefix('/')?.split_once("src/")?;
    match folder.strip_suffix('/') {
        None if folder.is_empty() => Some(("rtprof".to_owned(), inner)),
        // Deeper folders are packages of other workspaces.
        Some(folder) if !folder.contains('/') => {
            Some((format!("rtprof_{}", folder.replace('-', "_")), inner))
        }
        _ => None,
    }
}

/// Splits a path into the crate, and the path below its source folder.
fn split(stem: &str) -> Option<(String, &str)> {
    for folder in ["/examples/", "/tests/", "/benches/", "/bin/"] {
        // Each file there is a separate crate, or a folder with a main.rs, or an ordinary package.
        if let Some((_, inner)) = stem.rsplit_once(folder)
            && !format!("/{inner}").contains("/src/")
        {
            let (name, rest) = inner.split_once('/').unwrap_or((inner, ""));
            return Some((name.replace('-', "_"), rest));
        }
    }
    let (before, inner) = stem.rsplit_once("/src/")?;
    let folder = before.rsplit('/').next()?;
    let name = without_version(folder).replace('-', "_");
    if name.is_empty() {
        return None;
    }
    let is_taken = matches!(name.as_str(), "alloc" | "core" | "std" | "hashbrown");
    if is_taken && !is_library(&format!("{stem}.rs")) {
        // A member of a workspace in a folder called `core`: the parent folder is added, so that the name is not
        // mistaken for the library's.
        let around = before.rsplit('/').nth(1).unwrap_or("crate").replace('-', "_");
        return Some((format!("{around}::{name}"), inner));
    }
    Some((name, inner))
}

/// Returns `hashbrown` for `hashbrown-0.15.2`.
fn without_version(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version))
            if version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.') =>
        {
            name
        }
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_wild() {
        for (file, module) in [
            ("/rustc/5980/library/alloc/src/raw_vec/mod.rs", Some("alloc::raw_vec")),
            ("/rustc/5980/library/alloc/src/alloc.rs", Some("alloc::alloc")),
            (
                "/home/u/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/iter/traits/iterator.rs",
                Some("core::iter::traits::iterator"),
            ),
            ("/usr/src/rustc-1.85.0/library/std/src/thread/mod.rs", Some("std::thread")),
            ("/rust/deps/hashbrown-0.15.2/src/raw/mod.rs", Some("hashbrown::raw")),
            (
                "/home/u/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-json-1.0.1/src/de.rs",
                Some("serde_json::de"),
            ),
            ("/home/u/my-app/src/main.rs", Some("my_app")),
            ("/home/u/my-app/src/store/index.rs", Some("my_app::store::index")),
            ("/home/u/my-app/examples/heap.rs", Some("heap")),
            ("/home/u/my-app/examples/web-shop/src/store.rs", Some("web_shop::store")),
            ("/home/u/my-app/benches/src/main.rs", Some("benches")),
            ("/home/u/my-shop/core/src/store.rs", Some("my_shop::core::store")),
            ("/home/u/my-app/src/bin/tool/main.rs", Some("tool")),
            ("src/main.rs", None),
            ("/usr/include/c++/12/vector", None),
        ] {
            assert_eq!(module_of(file).as_deref(), module, "{file}");
        }
    }

    #[test]
    fn the_library_is_known_by_its_folders() {
        for file in ["/rustc/5980/library/std/src/lib.rs", "/usr/src/rustc-1.85.0/library/std/src/lib.rs"] {
            assert!(is_library(file), "{file}");
        }
        assert!(!is_library("/usr/src/app/library/src/lib.rs"));
    }

    /// Checks each member of the workspace, so that a new one is not forgotten.
    #[test]
    fn own_crates_go_by_their_package_names() {
        let Some(root) = env!("CARGO_MANIFEST_DIR").strip_suffix("/symbols") else { return };
        let read =
            |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("it is in the repository");
        let between = |text: &str, from: &str, to: &str| {
            let (_, rest) = text.split_once(from).expect("it has one");
            rest.split_once(to).expect("it ends").0.to_owned()
        };
        let workspace = read("Cargo.toml");
        let members = between(&workspace, "members = [", "]");
        let mut members: Vec<_> = members.split(',').map(|member| member.trim().trim_matches('"')).collect();
        assert!(members.contains(&"pprof-out") && members.len() > 5, "{members:?}");
        members.push("");
        for member in members {
            let folder = if member.is_empty() { String::new() } else { format!("{member}/") };
            let name = between(&read(&format!("{folder}Cargo.toml")), "\nname = \"", "\"").replace('-', "_");
            let module = module_of(&format!("{root}/{folder}src/sample.rs"));
            assert_eq!(module, Some(format!("{name}::sample")));
        }
        let chain = format!("{root}/tests/fixtures/chain/src/main.rs");
        assert_eq!(module_of(&chain).as_deref(), Some("chain"));
    }
}
