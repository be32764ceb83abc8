//! The files in which packages keep debug information apart, and where they lie.
//!
//! A distribution's package has stripped files. Their debug information is in another package, and found from the
//! stripped file by its build id or by the name and checksum in its section `.gnu_debuglink`. The places and their order
//! are gdb's ("Debugging Information in Separate Files" in its manual). What several such files share `dwz -m` moves to
//! one more file, which the section `.gnu_debugaltlink` names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use object::Object;

use super::elf::{Elf, hex};

/// The folder where distributions install debug information.
pub(super) const INSTALLED: &str = "/usr/lib/debug";

/// A place where a file's debug information may lie.
#[derive(Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The checksum that the file must have if it has no build id.
    pub(super) checksum: Option<u32>,
}

/// What a stripped file says of its debug information.
#[derive(Debug, PartialEq)]
pub(super) struct DebugLink {
    pub(super) name: PathBuf,
    pub(super) checksum: u32,
}

impl DebugLink {
    pub(super) fn of(elf: &Elf<'_>) -> Option<Self> {
        let (name, checksum) = elf.gnu_debuglink().ok()??;
        let name = as_path(name);
        // A name with folders is not what the section is for, and could lead anywhere.
        let is_name = name.file_name() == Some(name.as_os_str()) && name.as_os_str().len() < 256;
        is_name.then_some(Self { name, checksum })
    }
}

/// Returns the places of the debug information of the file at `path`, best first.
pub(super) fn candidates(
    path: &Path,
    build_id: &[u8],
    link: Option<&DebugLink>,
    installed: &Path,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    if let Some(path) = by_build_id(build_id, installed) {
        candidates.push(Candidate { path, checksum: None });
    }
    let Some(link) = link else { return candidates };
    let mut folders = Vec::new();
    // The loader's path may lead through links, such as from /lib to /usr/lib.
    let real = std::fs::canonicalize(path).ok();
    for folder in [Some(path), real.as_deref()].into_iter().flatten().filter_map(Path::parent) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let beside = folders.iter().flat_map(|folder| [folder.to_path_buf(), folder.join(".debug")]);
    let apart = folders.iter().map(|folder| installed.join(folder.strip_prefix("/").unwrap_or(folder)));
    for folder in beside.chain(apart) {
        let place = folder.join(&link.name);
        // A file is not its own debug information.
        if place != path && Some(&place) != real.as_ref() {
            candidates.push(Candidate { path: place, checksum: Some(link.checksum) });
        }
    }
    candidates
}

/// Returns the places of the file that the section `.gnu_debugaltlink` of the file at `path` names, and its build id.
pub(super) fn alternative(path: &Path, elf: &Elf<'_>, installed: &Path) -> Option<(Vec<PathBuf>, Vec<u8>)> {
    let (name, build_id) = elf.gnu_debugaltlink().ok()??;
    // A relative name is relative to the file itself, not to a link to it, as those by build id are.
    let real = std::fs::canonicalize(path).ok();
    let folder = real.as_deref().unwrap_or(path).parent()?;
    let mut places = vec![folder.join(as_path(name))];
    places.extend(by_build_id(build_id, installed));
    Some((places, build_id.to_vec()))
}

/// Whether a file lies where distributions install libraries.
pub(super) fn is_of_system(path: &Path) -> bool {
    let folder = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("lib"));
    let mut parts = path.components().skip(1).map(|part| part.as_os_str());
    match parts.next() {
        Some(usr) if usr == "usr" => parts.next().is_some_and(folder),
        Some(first) => folder(first),
        None => false,
    }
}

/// The most bytes of a build id that are looked for; linkers write up to 32.
const MOST_BYTES: usize = 64;

fn by_build_id(build_id: &[u8], installed: &Path) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let name = format!("{}.debug", hex(rest));
    // A longer one is no hash, and its path would be refused in ways that seem temporary.
    (1..=MOST_BYTES)
        .contains(&rest.len())
        .then(|| installed.join(".build-id").join(hex(&[*first])).join(name))
}

/// Makes a path of the bytes that a file has for one.
#[cfg(unix)]
pub(super) fn as_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
pub(super) fn as_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(path: &str, build_id: &[u8], link: Option<&str>) -> Vec<String> {
        let link = link.map(|name| DebugLink { name: name.into(), checksum: 7 });
        let found = candidates(Path::new(path), build_id, link.as_ref(), Path::new(INSTALLED));
        let path = |candidate: &Candidate| candidate.path.display().to_string();
        found.iter().map(path).collect()
    }

    #[test]
    fn gdbs_places_in_its_order() {
        let of_app = paths("/opt/none/app", &[0xab, 0x01, 0xff], Some("app.debug"));
        assert_eq!(
            of_app,
            [
                "/usr/lib/debug/.build-id/ab/01ff.debug",
                "/opt/none/app.debug",
                "/opt/none/.debug/app.debug",
                "/usr/lib/debug/opt/none/app.debug",
            ]
        );
        assert_eq!(paths("/opt/none/app", &[0xab, 0x01], None), ["/usr/lib/debug/.build-id/ab/01.debug"]);
        assert_eq!(paths("/opt/none/app", &[], None), [""; 0]);
        // A link with the file's own name.
        assert_eq!(
            paths("/opt/none/app", &[], Some("app")),
            ["/opt/none/.debug/app", "/usr/lib/debug/opt/none/app"]
        );
    }

    #[test]
    fn libraries_of_the_system() {
        for path in
            ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libz.so.1", "/lib64/ld.so", "/usr/lib/l.so"]
        {
            assert!(is_of_system(Path::new(path)), "{path}");
        }
        for path in ["/usr/bin/app", "/opt/lib/libown.so", "/home/lib/app", "app", "/"] {
            assert!(!is_of_system(Path::new(path)), "{path}");
        }
    }
}
