//! Profiles written to files when the process ends: the variable `RTPROF_AT_EXIT`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rtprof_pprof_out::{BuiltIn, CpuCapture, CpuProfileOptions, Snapshot, Symbolization, looked_up, lookup};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::process::at_exit;
use rtprof_runtime::process::own_files;
use rtprof_runtime::process::private_file;
use rtprof_trace_out::{FlightRecorder, TraceError, WindowFiles, WindowOptions};

/// How long the process waits for its profiles, at most.
const LIMIT: Duration = Duration::from_secs(60);

/// What is written at exit, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtExit {
    contents: Vec<Content>,
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The profile of this name, as it is at exit.
    Profile(&'static str),
    /// The processor time from now to the exit.
    Cpu,
    /// The window of the flight recorder.
    Flight,
}

impl AtExit {
    pub(crate) const EXPECTED: &str = "names of profiles and a folder, as heap,cpu:/var/tmp/profiles; the names are heap, \
         allocs, block, mutex, goroutine, goroutineleak, threadcreate, cpu and flight";

    /// Reads `heap,cpu:DIRECTORY`; `None` for anything else.
    pub(crate) fn of(value: &str) -> Option<Self> {
        let (names, directory) = value.split_once(':')?;
        let content = |name: &str| match name.trim() {
            "cpu" => Some(Content::Cpu),
            "flight" => Some(Content::Flight),
            name => looked_up().map(BuiltIn::name).find(|known| *known == name).map(Content::Profile),
        };
        let mut contents = Vec::new();
        for name in names.split(',') {
            let content = content(name)?;
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
        let directory = directory.trim();
        (!directory.is_empty()).then(|| Self { contents, directory: directory.into() })
    }

    /// Prepares everything, so that what cannot be had is known before the program runs.
    pub(crate) fn start(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if at_exit::is_set() {
            return Err("files at exit were asked for already".into());
        }
        let directory = private_file::folder(&self.directory, &file_name("probe", "partial"))
            .map_err(|error| format!("cannot write into {}: {error}", self.directory.display()))?;
        if self.contents.contains(&Content::Flight) && FlightRecorder::current().is_none() {
            return Err("no flight recorder runs; RTPROF_FLIGHT=on starts one".into());
        }
        let starts_cpu = self.contents.contains(&Content::Cpu);
        let cpu = starts_cpu.then(|| CpuCapture::start(&CpuProfileOptions::default())).transpose()?;
        Ok(at_exit::at_exit(LIMIT, Box::new(move || self.write(&directory, cpu)))?)
    }

    fn write(&self, directory: &Path, cpu: Option<CpuCapture>) {
        // Ended before the other profiles are written, which takes processor time too.
        let mut cpu = cpu.map(|capture| capture.finish().map_err(io::Error::other));
        let mut told = String::new();
        for content in &self.contents {
            let (name, written) = match content {
                Content::Profile(name) => {
                    let profile = lookup(name).ok_or_else(|| io::ErrorKind::NotFound.into());
                    let taken = profile.and_then(|profile| profile.snapshot());
                    (*name, taken.and_then(|snapshot| write_profile(&snapshot, name, directory)))
                }
                Content::Cpu => {
                    let taken = cpu.take().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
                    ("cpu", taken.and_then(|snapshot| write_profile(&snapshot, "cpu", directory)))
                }
                Content::Flight => ("flight", write_flight(directory).map_err(io::Error::other)),
            };
            let _ = match written {
                Ok(path) => writeln!(told, "rtprof: {name} at exit: {}", path.display()),
                Err(error) => writeln!(told, "rtprof: {name} at exit was not written: {error}"),
            };
        }
        // When all is written: the thread that exits may hold what a message needs.
        at_exit::tell(&told);
    }
}

/// Writes a profile into a file that gets its name when it is complete: the process may be killed before that.
fn write_profile(snapshot: &Snapshot, name: &str, directory: &Path) -> io::Result<PathBuf> {
    let file = |extension| directory.join(file_name(name, extension));
    let (path, partial) = (file("pb.gz"), file("partial"));
    let written = private_file::create(&partial).and_then(|mut file| {
        snapshot.write_proto(&mut file, Symbolization::Full)?;
        fs::rename(&partial, &path)
    });
    if written.is_err() {
        // The disk may be full.
        let _ = fs::remove_file(&partial);
    }
    written.map(|()| path)
}

fn write_flight(directory: &Path) -> Result<PathBuf, TraceError> {
    let flight = FlightRecorder::current().ok_or(TraceError::FlightDisabled)?;
    // Files of other processes are theirs.
    let max_files = usize::MAX;
    let options = WindowOptions { directory: directory.to_owned(), max_files, ..WindowOptions::default() };
    WindowFiles::new(&flight, options)
        .map_err(|error| TraceError::Write(error, Box::default()))?
        .write("exit")
}

/// The name sorts by profile, then by time, in ms since 1970.
fn file_name(name: &str, extension: &str) -> String {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    let (process, program) = (own_process(), own_files::program());
    format!("{name}-{time:013}-{process}-{program}.{extension}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_and_a_folder() {
        let expected = AtExit {
            contents: vec![Content::Profile("heap"), Content::Cpu, Content::Flight],
            directory: "/a:b/c".into(),
        };
        assert_eq!(AtExit::of("heap, cpu,flight,heap: /a:b/c"), Some(expected));
        for wrong in ["", "heap", "heap:", "heap: ", ":/tmp", "heap,:/tmp", "heaps:/tmp", "/tmp", "heap /tmp"]
        {
            assert_eq!(AtExit::of(wrong), None, "{wrong}");
        }
        for name in looked_up().map(BuiltIn::name) {
            let (_, names) = AtExit::EXPECTED.split_once("the names are ").unwrap();
            assert!(names.split([',', ' ']).any(|known| known == name), "{name} is not named");
            assert!(AtExit::of(&format!("{name}:/tmp")).is_some());
        }
    }
}
