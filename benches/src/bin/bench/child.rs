//! A running binary that answers requests.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

/// A process, which is killed when dropped.
pub(crate) struct Child {
    process: Process,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    name: String,
}

impl Child {
    /// Starts a binary.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(path: &Path) -> io::Result<Self> {
        let name = path.display().to_string();
        let mut process = Command::new(path)
            // hotpath would serve its figures at a fixed port.
            .env("HOTPATH_METRICS_SERVER_OFF", "true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        let requests = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        Ok(Self { process, requests, answers, name })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request and returns the numbers of its answer.
    ///
    /// # Errors
    /// When the process is gone or answers something else than numbers.
    pub(crate) fn ask(&mut self, request: &str) -> io::Result<Vec<f64>> {
        writeln!(self.requests, "{request}").map_err(|error| self.failed(request, &error.to_string()))?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let status = self.process.wait()?;
            return Err(self.failed(request, &format!("ended with {status}")));
        }
        line.split_whitespace()
            .map(|word| word.parse().map_err(|_| self.failed(request, &format!("answered {line}"))))
            .collect()
    }

    /// Sends a request whose answer is exactly `N` numbers.
    ///
    /// # Errors
    /// As [`Child::ask`], and when there are more or fewer.
    pub(crate) fn numbers<const N: usize>(&mut self, request: &str) -> io::Result<[f64; N]> {
        let answer = self.ask(request)?;
        answer.try_into().map_err(|other| self.failed(request, &format!("answered {other:?}")))
    }

    fn failed(&self, request: &str, what: &str) -> io::Error {
        io::Error::other(format!("{} at `{request}`: {what}", self.name))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
