//! Tests in a separate process: the test binary starts itself again with one test selected and a scenario in the
//! environment.
//!
//! A test that needs this has the form
//!
//! ```ignore
//! #[test]
//! fn frees_are_found() {
//!     child::isolated("frees_are_found", || { ..what runs in the child.. });
//! }
//! ```
//!
//! so that totals are clean, a setting does not affect another test, and a crash or a hang fails this test and not the
//! whole binary.

use std::ffi::CStr;
use std::io::{Read, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::stress;

const SCENARIO: &str = "RTPROF_TEST_SCENARIO";

/// Long enough for a debug build on a machine with two cores on which four other threads compute all the time, so that
/// a server that gives way to them (nice 10) gets a twentieth of a core; short enough to notice a deadlock. A stress test may
/// take its time beside it.
fn patience() -> Duration {
    Duration::from_secs(600) + 2 * stress()
}

/// Runs `body` in a child process and fails with all of its output unless it ended with success.
///
/// `test` is the name of the calling test, here and below: in a binary of several files the file's module is added.
#[track_caller]
pub fn isolated(test: &str, body: impl FnOnce()) {
    isolated_as(test, "", body);
}

/// As [`isolated`], for a test that runs its body several times, with different values of `scenario`.
#[track_caller]
pub fn isolated_as(test: &str, scenario: &str, body: impl FnOnce()) {
    isolated_with(test, scenario, |_| {}, body);
}

/// As [`isolated_as`], in a child whose command `set` has prepared.
#[track_caller]
pub fn isolated_with(test: &str, scenario: &str, set: impl FnOnce(&mut Command), body: impl FnOnce()) {
    if is(test, scenario) {
        run(body);
    } else if !any() {
        judge(test, output(test, scenario, set));
    }
    // Otherwise this is the child of another scenario of the same test, whose turn comes, or was.
    assert_not_nested(test);
}

/// Whether this process runs the body of an isolated test.
static IN_BODY: AtomicBool = AtomicBool::new(false);

#[track_caller]
fn assert_not_nested(test: &str) {
    assert!(!IN_BODY.load(Relaxed), "{test} is isolated already, so this would never run");
}

/// What a child prints before it runs the body. A child that ends well and has not printed it has tested nothing.
const MARK: &str = "the isolated body begins\n";

fn run(body: impl FnOnce()) {
    IN_BODY.store(true, Relaxed);
    // Not by `println`, which allocates: the body is to be the first that does.
    // SAFETY: the call reads a constant of that length.
    let written = unsafe { libc::write(libc::STDOUT_FILENO, MARK.as_ptr().cast(), MARK.len()) };
    assert_eq!(written, MARK.len() as isize, "the parent reads it");
    body();
    IN_BODY.store(false, Relaxed);
}

/// As [`isolated`], in a child whose executable is a copy in `folder`, which the test may modify.
#[track_caller]
pub fn isolated_from(folder: &Path, test: &str, body: impl FnOnce()) {
    if is(test, "") {
        run(body);
    } else if !any() {
        let program = folder.join("program");
        std::fs::create_dir_all(folder).expect("the build's own folder can be written");
        // An earlier run may have left something other than a file.
        std::fs::remove_file(&program).ok();
        std::fs::copy(own_binary(), &program).expect("the build's own folder can be written");
        judge(test, output_of(Command::new(program), test, "", |_| {}));
    }
    assert_not_nested(test);
}

/// As [`isolated`], in a child that executes `loader` with this binary as an argument.
#[track_caller]
pub fn isolated_by_loader(loader: &Path, test: &str, body: impl FnOnce()) {
    if is(test, "") {
        run(body);
    } else if !any() {
        let mut command = Command::new(loader);
        command.arg(own_binary());
        judge(test, output_of(command, test, "", |_| {}));
    }
    assert_not_nested(test);
}

#[track_caller]
fn judge(test: &str, output: Output) {
    assert!(output.status.success(), "{test} failed:\n{}", report(&output));
    assert_began(test, &output);
}

#[track_caller]
fn assert_began(test: &str, output: &Output) {
    let began = String::from_utf8_lossy(&output.stdout).contains(MARK);
    assert!(began, "{test} did not run its body:\n{}", report(output));
}

fn own_binary() -> PathBuf {
    std::env::current_exe().expect("a test knows its own binary")
}

/// Returns whether this process is the child for `scenario` of `test`.
#[track_caller]
pub fn is(test: &str, scenario: &str) -> bool {
    // Computed outside the closure, where the caller would be this file.
    let key = key(test, scenario);
    std::env::var(SCENARIO).is_ok_and(|running| running == key)
}

/// Returns whether this process is the child of the test with this full name, before `main` and without an allocation.
pub fn is_before_main(full_name: &str) -> bool {
    let name = c"RTPROF_TEST_SCENARIO";
    // SAFETY: no other thread runs before `main`, so the environment stays as it is.
    let running = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: as above; a variable of the environment is a string.
    let running = (!running.is_null()).then(|| unsafe { CStr::from_ptr(running) }.to_bytes());
    running.is_some_and(|running| running.strip_prefix(full_name.as_bytes()) == Some(b"/"))
}

/// Returns whether this process is any child.
pub fn any() -> bool {
    std::env::var_os(SCENARIO).is_some()
}

/// Runs the child for `scenario` of `test` to its end, with success or not.
#[track_caller]
pub fn output(test: &str, scenario: &str, set: impl FnOnce(&mut Command)) -> Output {
    output_of(Command::new(own_binary()), test, scenario, set)
}

#[track_caller]
fn output_of(mut command: Command, test: &str, scenario: &str, set: impl FnOnce(&mut Command)) -> Output {
    let (full_name, key) = (full_name(test), key(test, scenario));
    assert!(std::env::var(SCENARIO).as_ref() != Ok(&key), "{key} would start itself, again and again");
    command
        .args(["--exact", &full_name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, key)
        // Children print their panics; resolving the panics' stacks under a tight limit would test std, not our code.
        .env("RUST_BACKTRACE", "0");
    set(&mut command);
    let output = finish(&mut command);
    // A test that skips itself in the child is reported too.
    let stderr = String::from_utf8_lossy(&output.stderr);
    for line in stderr.lines().filter(|line| line.starts_with("SKIPPED: ")) {
        writeln!(std::io::stderr(), "{line}").ok();
    }
    // A name that selects nothing would be a test that cannot fail.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("running 0 tests"), "no test is called {full_name}");
    output
}

/// Runs a command to its end; a command that hangs is killed and reported.
pub fn finish(command: &mut Command) -> Output {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if started.elapsed() > patience() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child can be waited for");
            panic!("{command:?} hung for {:?}; its error output was:\n{}", patience(), text(stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: text(stdout).into_bytes(), stderr: text(stderr).into_bytes() }
}

/// Runs `body` in a child process, and fails unless it aborts there with this complaint.
#[track_caller]
pub fn aborts(test: &str, complaint: &str, body: impl FnOnce()) {
    if is(test, "") {
        run(body);
    } else if !any() {
        let output = output(test, "", |_| {});
        assert_eq!(signal(output.status), Some(libc::SIGABRT), "{}", report(&output));
        assert_began(test, &output);
        assert!(String::from_utf8_lossy(&output.stderr).contains(complaint), "{}", report(&output));
    }
    assert_not_nested(test);
}

/// Returns a child's whole output for a failure's message: first the reason, which CI's summary shows.
pub fn report(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    format!(
        "{}\n--- stderr\n{}\n--- stdout\n{}",
        describe(output.status),
        String::from_utf8_lossy(stderr),
        String::from_utf8_lossy(stdout)
    )
}

/// Returns the signal that ended a process, if one did.
pub fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

fn describe(status: ExitStatus) -> String {
    match signal(status) {
        Some(signal) => format!("killed by signal {signal}"),
        None => status.to_string(),
    }
}

#[track_caller]
fn key(test: &str, scenario: &str) -> String {
    format!("{}/{scenario}", full_name(test))
}

/// Returns the harness's name of `test` of the calling file: `tests/profilers/waits/threads.rs` is the module
/// `waits::threads` of the binary `profilers`, and `tests/truth.rs` is a binary by itself.
#[track_caller]
fn full_name(test: &str) -> String {
    let file = Location::caller().file();
    let (_, below_tests) = file.rsplit_once("tests/").expect("tests are in tests/");
    // The first part is the binary.
    let mut names: Vec<_> = below_tests.trim_end_matches(".rs").split('/').skip(1).collect();
    if let Some(&"main" | &"mod") = names.last() {
        names.pop();
    }
    names.push(test);
    names.join("::")
}

/// What is read from a pipe, and its end.
struct Drained {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

/// Reads a pipe while the child runs, which would block at a full pipe.
fn drain(pipe: Option<impl Read + Send + 'static>) -> Drained {
    let (bytes, (ended, end)) = (Arc::default(), channel());
    let read = Arc::clone(&bytes);
    std::thread::spawn(move || {
        let (mut pipe, mut part) = (pipe, [0; 4096]);
        while let Some(pipe) = &mut pipe
            && let Ok(count @ 1..) = pipe.read(&mut part)
        {
            lock(&read).extend_from_slice(&part[..count]);
        }
        ended.send(()).ok();
    });
    Drained { bytes, end }
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().expect("nothing panics with it")
}

/// Returns all that was read, when the child is over. A process that the child has left behind may hold the pipe open,
/// perhaps for ever.
fn text(drained: Drained) -> String {
    let is_over = drained.end.recv_timeout(crate::PATIENCE).is_ok();
    let read = String::from_utf8_lossy(&lock(&drained.bytes)).into_owned();
    assert!(is_over, "the child is over, but a process that it started still holds its output:\n{read}");
    read
}
