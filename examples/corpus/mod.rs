//! Text that every machine with Rust has, as work for the examples.
#![allow(dead_code, reason = "every example uses its own part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes in a mebibyte.
pub(crate) const MIB: usize = 1 << 20;

/// Returns the amount of text to read in bytes: the MiB of the first argument, or `default`.
pub(crate) fn budget(default: usize) -> Result<usize, String> {
    match std::env::args().nth(1) {
        Some(text) => match text.parse::<usize>() {
            Ok(mebibytes) if mebibytes <= 1 << 20 => Ok(mebibytes * MIB),
            _ => Err(format!("{text}: give a number of MiB")),
        },
        None => Ok(default * MIB),
    }
}

/// Returns the folder of the toolchain's documentation, else of its sources, else this repository.
pub(crate) fn source() -> PathBuf {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = sysroot.and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default();
    let sysroot = Path::new(sysroot.trim());
    ["share/doc/rust/html", "lib/rustlib/src"]
        .map(|part| sysroot.join(part))
        .into_iter()
        .find(|dir| dir.is_dir())
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
}

/// Returns all pages below `dir`, sorted.
pub(crate) fn pages(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(dir, &mut files);
    files.sort();
    files
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !path.ends_with(".git") && !path.ends_with("target") => {
                collect(&path, files)
            }
            Ok(kind) if kind.is_file() && is_text(&path) => files.push(path),
            _ => {}
        }
    }
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "html" || e == "rs" || e == "md")
}

/// Returns a page without tags, in lower case.
#[inline(never)]
pub(crate) fn plain_text(html: &str) -> String {
    let mut text = String::with_capacity(html.len() / 2);
    let mut in_tag = false;
    for c in html.chars() {
        match c {
            '<' => in_tag = true,
            '>' => in_tag = false,
            _ if in_tag => {}
            _ => text.extend(c.to_lowercase()),
        }
    }
    text
}

/// Returns the words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() > 1)
}
