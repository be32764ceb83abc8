//! A directory of windows: names, permissions, the removal of old files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rtprof_runtime::process::private_file;

use crate::error::TraceError;
use crate::options::Format;

const PREFIX: &str = "flight-";
/// A file that is being written, or whose process ended before it was complete.
const PARTIAL: &str = "partial";
/// Digits of the time in a name, in ms: the names sort by it until the year 2286.
const DIGITS: usize = 13;
/// The age at which an unfinished file is not being written any more.
const UNFINISHED: Duration = Duration::from_secs(600);
/// Bytes of the reason in a name.
const LONGEST_REASON: usize = 64;

/// A directory in which files can be created.
pub(super) struct Directory {
    path: PathBuf,
    max_files: usize,
}

impl Directory {
    /// Creates it if it does not exist.
    pub(super) fn new(path: &Path, max_files: usize) -> io::Result<Self> {
        let path =
            private_file::folder(path, &file_name("probe", PARTIAL)).map_err(|error| at(path, error))?;
        Ok(Self { path, max_files: max_files.max(1) })
    }

    /// Creates a file for this format, and removes the oldest ones. If `write` fails there is no file.
    pub(super) fn write(
        &self,
        (reason, format): (&str, Format),
        write: impl FnOnce(&File) -> Result<(), TraceError>,
    ) -> Result<PathBuf, TraceError> {
        let path = self.path.join(file_name(reason, format.file_extension()));
        let partial = path.with_extension(PARTIAL);
        let failed = |error, stats| TraceError::Write(at(&partial, error), stats);
        let written = self.create(&partial).map_err(|error| failed(error, Box::default())).and_then(|file| {
            write(&file).map_err(|error| match error {
                TraceError::Write(error, stats) => failed(error, stats),
                error => error,
            })?;
            fs::rename(&partial, &path).map_err(|error| failed(error, Box::default()))
        });
        if written.is_err() {
            // The disk may be full.
            fs::remove_file(&partial).ok();
        }
        written?;
        self.remove_old(&path);
        Ok(path)
    }

    /// Creates a file, and the directory again if it was removed.
    fn create(&self, path: &Path) -> io::Result<File> {
        match private_file::create(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.path)?;
                private_file::create(path)
            }
            result => result,
        }
    }

    /// Removes the oldest files, and what other processes have left unfinished. Their age counts, not their names: the
    /// clock may have been set back.
    fn remove_old(&self, newest: &Path) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let mut complete = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(is_file_name);
            let Ok(changed) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            if !is_ours || path == newest {
                continue;
            }
            if has_extension(&path, &complete_extensions()) {
                complete.push((changed, path));
            } else if changed.elapsed().is_ok_and(|age| age > UNFINISHED) {
                fs::remove_file(path).ok();
            }
        }
        complete.sort_unstable();
        let excess = (complete.len() + 1).saturating_sub(self.max_files);
        for (_, old) in &complete[..excess] {
            // Another process may have removed it.
            fs::remove_file(old).ok();
        }
    }
}

/// Returns a name that this process has not used yet.
fn file_name(reason: &str, extension: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since_1970.as_millis()).unwrap_or(0);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
    let time = now.max(last.unwrap_or(0) + 1);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let reason: String = reason.chars().take(LONGEST_REASON).map(plain).collect();
    format!("{PREFIX}{time:0DIGITS$}-{}-{reason}.{extension}", std::process::id())
}

/// Whether [`file_name`] makes such names.
fn is_file_name(name: &str) -> bool {
    let after_time = name.strip_prefix(PREFIX).and_then(|rest| rest.split_at_checked(DIGITS));
    let is_dated = after_time
        .is_some_and(|(time, rest)| time.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with('-'));
    is_dated
        && (has_extension(name.as_ref(), &complete_extensions()) || has_extension(name.as_ref(), &[PARTIAL]))
}

fn complete_extensions() -> Vec<&'static str> {
    Format::ALL.iter().map(|format| format.file_extension()).collect()
}

fn has_extension(path: &Path, any_of: &[&str]) -> bool {
    path.extension().is_some_and(|extension| any_of.iter().any(|one| extension == *one))
}

/// Adds the path to an error, whose text does not have it.
fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_sort_by_time_and_are_recognized() {
        let reasons = ["checkout", "../../etc/passwd", "", "GET /a?b=ü"];
        let names: Vec<_> = (0..100).map(|i| file_name(reasons[i % reasons.len()], "trace")).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for name in &names {
            assert!(is_file_name(name) && !name.contains(['/', '?']) && name.is_ascii(), "{name}");
        }
        let format = Format::Perfetto.file_extension();
        assert!(is_file_name(&file_name("checkout", format)));
        assert!(file_name(&"long".repeat(1000), format).len() < 255);
        for foreign in
            ["flight-1.trace", "flight-1764230000123.trace", "flight-1764230000123-1-x.pb", "trace.out"]
        {
            assert!(!is_file_name(foreign), "{foreign}");
        }
    }
}
