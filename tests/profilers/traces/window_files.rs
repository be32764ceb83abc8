//! Files of windows: written when an operation is slow, and when the program panics.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rtprof::sync::Mutex;
use rtprof::thread;
use rtprof::trace::{FlightRecorder, Options, Task, TraceError, WindowFiles, WindowOptions};
use rtprof_trace_check::{EventType, Parsed};
use test_support::folder;
use test_support::recording::{self, assert_works, is_named};
use test_support::{PATIENCE, child, fork, until};

/// What [`report`] was called with.
static REPORTS: Mutex<Vec<(String, Result<PathBuf, String>)>> = Mutex::new(Vec::new());

fn report(reason: &str, result: &Result<PathBuf, TraceError>) {
    let result = result.as_ref().map_err(ToString::to_string).cloned();
    REPORTS.lock().push((reason.to_owned(), result));
}

/// Returns the directory of a test.
fn directory(name: &str) -> PathBuf {
    folder::tmp().join("windows").join(name)
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it exists");
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns options with an empty directory.
fn options(name: &str) -> WindowOptions {
    fs::remove_dir_all(directory(name)).ok();
    WindowOptions {
        directory: directory(name),
        report,
        min_interval: PATIENCE,
        panic_timeout: PATIENCE,
        ..Default::default()
    }
}

/// Returns a recorder whose windows reach back to its start.
fn recorder() -> FlightRecorder {
    FlightRecorder::new(Options { min_age: PATIENCE, ..Options::default() })
}

fn started() -> FlightRecorder {
    let flight = recorder();
    flight.start().expect("no other one is enabled");
    flight
}

#[track_caller]
fn parsed(path: &Path) -> Parsed {
    recording::parse(&fs::read(path).expect("the file exists"), "window-file")
}

/// Returns the texts of a category's messages, and the functions of their stacks.
fn logs(parsed: &Parsed, category: &str) -> Vec<(String, Vec<String>)> {
    let of = |event: rtprof_trace_check::Event<'_>| {
        let functions = event.functions().into_iter().map(|name| name.to_string()).collect();
        (event.message().to_owned(), functions)
    };
    parsed.events_of(EventType::UserLog).filter(|event| event.name() == category).map(of).collect()
}

fn do_slowly(files: &WindowFiles, limit: Duration) {
    let task = Task::new("checkout");
    let _entered = task.enter();
    let _limit = files.if_slower("check out/1", limit);
}

#[test]
fn a_slow_operation_writes_a_window() {
    child::isolated("a_slow_operation_writes_a_window", || {
        let flight = recorder();
        let options = options("slow");
        let directory = options.directory.clone();
        let files = WindowFiles::new(&flight, options).expect("it can be created");
        // It is not enabled yet.
        do_slowly(&files, Duration::ZERO);
        flight.start().expect("no other one is enabled");
        do_slowly(&files, Duration::MAX);
        do_slowly(&files, Duration::ZERO);
        until("the window is reported", || !REPORTS.lock().is_empty());
        // Within the interval.
        do_slowly(&files, Duration::ZERO);
        let (reason, result) = REPORTS.lock()[0].clone();
        assert!(reason.starts_with("check out/1 took ") && reason.ends_with(", more than 0ns"), "{reason}");
        let path = result.expect("it can be written");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(path.to_str().unwrap().ends_with("-check_out_1.trace"), "{path:?}");

        let window = parsed(&path);
        let slow = logs(&window, "slow");
        assert_eq!(slow.len(), 1);
        assert_eq!(slow[0].0, reason);
        assert!(is_named(&slow[0].1[0], "do_slowly"), "{slow:?}");
        // Also the one that was not slow.
        assert_eq!(window.events_of(EventType::UserTaskCreate).count(), 2);

        // Without an interval each writes one; all but the newest are removed.
        fs::write(directory.join("flight-note.trace"), "not ours").unwrap();
        // Of a process whose clock was ahead; of one that is writing, and of one that was killed an hour ago.
        fs::write(directory.join("flight-9999999999999-1-ahead.trace"), "").unwrap();
        fs::write(directory.join("flight-0000000000001-1-writing.partial"), "").unwrap();
        let killed = fs::File::create(directory.join("flight-0000000000002-1-killed.partial")).unwrap();
        killed.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        let options = WindowOptions { directory: directory.clone(), max_files: 3, ..Default::default() };
        let often = WindowOptions { min_interval: Duration::ZERO, report, ..options };
        let files = WindowFiles::new(&flight, often).expect("it exists");
        for i in 2..7 {
            do_slowly(&files, Duration::ZERO);
            until("the window is reported", || REPORTS.lock().len() == i);
        }
        let last = files.write("on request").expect("it can be written");
        assert_eq!(logs(&parsed(&last), "slow").len(), 7);
        let names = files_in(&directory);
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!(names[0], "flight-0000000000001-1-writing.partial");
        assert!(names[1..4].iter().all(|name| name.ends_with(".trace")), "{names:?}");
        assert!(directory.join(&names[3]) == last && names[4] == "flight-note.trace", "{names:?}");
        flight.stop();
        assert!(matches!(files.write("on request"), Err(TraceError::FlightDisabled)));
        assert_works();
    });
}

#[test]
fn a_directory_that_fails_is_reported() {
    child::isolated("a_directory_that_fails_is_reported", || {
        let flight = started();
        let options = options("fails");
        let directory = options.directory.clone();
        let files = WindowFiles::new(&flight, options.clone()).expect("it can be created");
        fs::remove_dir(&directory).expect("it is empty");
        files.write("on request").expect("the directory is created again");
        fs::remove_dir_all(&directory).expect("it exists");
        fs::write(&directory, "a file").unwrap();
        do_slowly(&files, Duration::ZERO);
        until("the error is reported", || !REPORTS.lock().is_empty());
        let (_, result) = REPORTS.lock()[0].clone();
        let error = result.expect_err("there is no directory");
        assert!(error.contains("failed after 0 bytes: ") && error.contains("fails/flight-"), "{error}");
        let error = WindowFiles::new(&flight, options).expect_err("it is a file").to_string();
        assert!(error.contains("windows/fails: "), "{error}");
        fs::remove_file(&directory).unwrap();
        flight.stop();
    });
}

/// Lets a child panic, which must end as it would without a window, and checks the window.
fn window_of_panic(scenario: &str, panics: impl FnOnce(&WindowFiles)) {
    let test = "a_panic_writes_a_window";
    if child::is(test, scenario) {
        let flight = started();
        let files = WindowFiles::new(&flight, options(scenario)).expect("it can be created");
        files.on_panic();
        files.on_panic();
        panics(&files);
        unreachable!("it has ended");
    }
    if child::any() {
        return;
    }
    let output = child::output(test, scenario, |_| {});
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("as wanted"), "{}", child::report(&output));
    let files = files_in(&directory(scenario));
    assert_eq!(files.len(), 1, "{files:?}: {}", child::report(&output));
    assert!(files[0].ends_with("-panic.trace"), "{files:?}");
    let window = parsed(&directory(scenario).join(&files[0]));
    let panics = logs(&window, "panic");
    let (message, stack) = &panics[0];
    assert!(message.starts_with(concat!("panicked at ", file!(), ":")), "{message}");
    assert!(message.ends_with(": as wanted"), "{message}");
    assert!(stack.iter().any(|function| is_named(function, "fails")), "{stack:?}");
}

#[inline(never)]
fn fails() {
    panic!("as wanted");
}

extern "C" fn fails_and_aborts() {
    fails();
}

#[test]
fn a_panic_writes_a_window() {
    window_of_panic("one thread", |_| fails());
    // A panic that cannot unwind.
    window_of_panic("abort", |_| fails_and_aborts());
    // The second thread would end the process while the first one's window is written.
    window_of_panic("two threads", |_| {
        thread::spawn(fails);
        until("the first panic has begun", || !files_in(&directory("two threads")).is_empty());
        fails_and_aborts();
    });
    // The interval of slow operations is another one.
    window_of_panic("after a slow one", |files| {
        do_slowly(files, Duration::ZERO);
        until("the window is reported", || !REPORTS.lock().is_empty());
        let (_, path) = REPORTS.lock().pop().expect("it was reported");
        fs::remove_file(path.expect("it can be written")).expect("it exists");
        fails();
    });
}

#[test]
fn a_panic_that_is_caught_goes_on() {
    child::isolated("a_panic_that_is_caught_goes_on", || {
        static BEFORE: AtomicUsize = AtomicUsize::new(0);
        panic::set_hook(Box::new(|_| {
            BEFORE.fetch_add(1, Ordering::Relaxed);
        }));
        let flight = recorder();
        let options = options("caught");
        let directory = options.directory.clone();
        let files = WindowFiles::new(&flight, options).expect("it can be created");
        files.on_panic();
        // It is not enabled yet.
        panic::catch_unwind(fails).expect_err("it panics");
        flight.start().expect("no other one is enabled");
        panic::catch_unwind(fails).expect_err("it panics");
        // It is written when the panic goes on.
        let names = files_in(&directory);
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(logs(&parsed(&directory.join(&names[0])), "panic").len(), 1);
        // Within the interval.
        panic::catch_unwind(fails).expect_err("it panics");
        assert_eq!(files_in(&directory).len(), 1);
        until("the window is reported", || REPORTS.lock().len() == 1);
        assert_eq!(BEFORE.load(Ordering::Relaxed), 3);
        flight.stop();
        assert_works();
    });
}

/// A report that needs a lock of the thread that panics, and panics itself.
#[test]
fn a_report_that_waits_or_panics_holds_up_no_panic() {
    child::isolated("a_report_that_waits_or_panics_holds_up_no_panic", || {
        static HELD: Mutex<usize> = Mutex::new(0);
        let report = |_: &str, _: &Result<PathBuf, TraceError>| {
            *HELD.lock() += 1;
            panic!("in the report");
        };
        let flight = started();
        let forever = Duration::from_secs(1 << 30);
        let options = WindowOptions { report, panic_timeout: forever, ..options("reports") };
        let directory = options.directory.clone();
        let files = WindowFiles::new(&flight, options).expect("it can be created");
        files.on_panic();
        // It would wait for ever for the report, or the report for itself.
        let held = HELD.lock();
        panic::catch_unwind(fails).expect_err("it panics");
        assert_eq!(files_in(&directory).len(), 1);
        drop(held);
        until("the window is reported", || *HELD.lock() == 1);
        panic::catch_unwind(fails).expect_err("it panics");
        assert_eq!(files_in(&directory).len(), 1);
        flight.stop();
        assert_works();
    });
}

#[test]
fn a_forked_child_writes_none() {
    fork::isolated("a_forked_child_writes_none", "fork", || {
        let flight = started();
        let options = options("forked");
        let directory = options.directory.clone();
        let files = WindowFiles::new(&flight, options).expect("it can be created");
        files.on_panic();
        fork::in_a_child("a child of a flight recorder", || {
            do_slowly(&files, Duration::ZERO);
            panic::catch_unwind(fails).expect_err("it panics");
            assert!(matches!(files.write("on request"), Err(TraceError::FlightDisabled)));
        });
        assert!(files_in(&directory).is_empty());
        files.write("on request").expect("it can be written");
        flight.stop();
        assert_works();
    });
}
