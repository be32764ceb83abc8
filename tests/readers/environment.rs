//! What the operator sets by variables: `rtprof::init`, and profiles at exit.

use std::fs;
use std::future::{pending, ready};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rtprof::GoroutineKind;
use rtprof::task::Instrument;
use test_support::profile::Profile;
use test_support::{child, folder, fork, processor, web};

/// Runs `check` in a process with these variables.
#[track_caller]
fn with_variables(test: &str, scenario: &str, variables: &[(&str, &str)], check: impl FnOnce()) {
    let set = |command: &mut std::process::Command| {
        // Not the variables of who runs the tests.
        for (name, _) in std::env::vars_os() {
            let is_ours = |name: &str| name.starts_with("RTPROF") && !name.starts_with("RTPROF_TEST");
            if name.to_str().is_some_and(is_ours) {
                command.env_remove(name);
            }
        }
        for (name, value) in variables {
            command.env(name, value);
        }
    };
    child::isolated_with(test, scenario, set, check);
}

#[test]
fn init_follows_the_environment() {
    let with_variables = |scenario: &str, variables: &[(&str, &str)], check: &dyn Fn()| {
        with_variables("init_follows_the_environment", scenario, variables, check);
    };
    let rates = || {
        let fraction = rtprof::set_mutex_profile_fraction(-1);
        (rtprof::mem_profile_rate(), rtprof::block_profile_rate(), fraction)
    };
    let any_port = ("RTPROF_ADDR", "127.0.0.1:0");
    with_variables("defaults", &[any_port], &|| {
        let server = rtprof::init().expect("a port is free").expect("it is on");
        assert_eq!((rates(), rtprof::profile_budget()), ((512 << 10, 10_000, 10), Some(1.0)));
        assert_eq!(web::get(server.local_addr(), "/debug/pprof/mutex?debug=1").status, 200);
        let page = web::get(server.local_addr(), "/debug/pprof/");
        assert!(page.text().contains("1 % of the processor time"), "{}", page.text());
    });
    with_variables("a program's rates", &[any_port], &|| {
        rtprof::set_mem_profile_rate(4096);
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(2);
        rtprof::init().expect("a port is free");
        assert_eq!((rates(), rtprof::profile_budget()), ((4096, 1, 2), None));
    });
    let budgets = [(None, 3.0, Some(3.0)), (Some("0.5"), 3.0, Some(0.5)), (Some("off"), 3.0, None)];
    for (variable, before, after) in budgets {
        let set: Vec<_> =
            variable.map(|value| ("RTPROF_BUDGET", value)).into_iter().chain([any_port]).collect();
        with_variables(&format!("budget {variable:?}"), &set, &|| {
            rtprof::set_profile_budget(before).expect("it is a budget");
            rtprof::init().expect("a port is free");
            assert_eq!((rates(), rtprof::profile_budget()), ((512 << 10, 10_000, 10), after));
        });
    }
    let set = [
        any_port,
        ("RTPROF_TOKEN", "s3cret"),
        ("RTPROF_MEM_PROFILE_RATE", "1"),
        ("RTPROF_BLOCK_PROFILE_RATE", "0"),
        ("RTPROF_MUTEX_PROFILE_FRACTION", "3"),
    ];
    with_variables("variables", &set, &|| {
        rtprof::set_block_profile_rate(1);
        let server = rtprof::init().expect("a port is free").expect("it is on");
        assert_eq!(rates(), (1, 0, 3));
        assert_eq!(web::get(server.local_addr(), "/debug/pprof/heap").status, 401);
    });
    with_variables("off", &[("RTPROF", "off"), any_port], &|| {
        let before = pending::<()>().instrument_named("before");
        assert!(rtprof::init().expect("nothing can fail").is_none());
        assert_eq!(rates(), (0, 0, 0));
        let after = pending::<()>().instrument_named("after");
        let result = pin!(ready(3).instrument_named("ready")).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(result, Poll::Ready(3), "a task that is not followed is polled");
        let goroutines = rtprof::goroutine_profile();
        let names = goroutines.iter().filter(|one| one.kind == GoroutineKind::Task).map(|one| &*one.name);
        assert_eq!(names.collect::<Vec<_>>(), ["before"]);
        drop((before, after));
    });
    with_variables("no server", &[("RTPROF_ADDR", "off")], &|| {
        assert!(rtprof::init().expect("nothing can fail").is_none());
        assert_eq!(rates(), (512 << 10, 10_000, 10));
    });
    let wrong = [any_port, ("RTPROF_MEM_PROFILE_RATE", "1"), ("RTPROF_BLOCK_PROFILE_RATE", "1ms")];
    with_variables("an impossible value", &wrong, &|| {
        let error = rtprof::init().expect_err("it is no number").to_string();
        assert!(error.contains("RTPROF_BLOCK_PROFILE_RATE is \"1ms\""), "{error}");
        assert_eq!(rates(), (512 << 10, 0, 0), "changed in part");
    });
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    with_variables("a port in use", &[("RTPROF_ADDR", &*address)], &|| {
        let error = rtprof::init().expect_err("it is in use");
        assert!(std::error::Error::source(&error).is_none(), "its text is in the error's");
        // What a `main` shows that returns the error.
        let shown = format!("{error:?}");
        assert!(shown.contains("Address already in use") && shown.contains("RTPROF_ADDR"), "{shown}");
        assert!(!shown.contains("RTPROF_ALLOW_REMOTE"), "{shown}");
        let error = std::io::Error::from(error);
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), shown);
    });
    with_variables("an address for others", &[("RTPROF_ADDR", "0.0.0.0:0")], &|| {
        let error = rtprof::init().expect_err("others reach it").to_string();
        assert!(error.contains("RTPROF_ALLOW_REMOTE=on"), "{error}");
    });
}

#[test]
fn a_second_process_takes_another_port() {
    let test = "a_second_process_takes_another_port";
    // Whatever this machine serves on these ports, a process that asks for none begins.
    with_variables(test, "", &[], || {
        let first = rtprof::init().expect("no address is asked for");
        let second = rtprof::init().expect("no address is asked for");
        if let (Some(first), Some(second)) = (&first, &second) {
            assert_ne!(first.local_addr(), second.local_addr());
        }
        for server in first.iter().chain(&second) {
            assert!((6060..=6069).contains(&server.local_addr().port()), "{server:?}");
            assert_eq!(web::get(server.local_addr(), "/debug/pprof/heap").status, 200);
        }
    });
}

fn kept_until_the_end() -> &'static [u8] {
    Box::leak(vec![1; 1 << 20].into_boxed_slice())
}

#[inline(never)]
fn computes() {
    processor::burn(Duration::from_millis(200));
}

/// The end of a process, as the program chooses it.
const ENDS: [(&str, fn()); 4] = [
    ("main returns", || ()),
    ("exit", || std::process::exit(0)),
    ("exit with standard error locked", || {
        let _held = std::io::stderr().lock();
        std::process::exit(0);
    }),
    ("exit on a thread, by a child too", || {
        fork::in_a_child("a child writes nothing", || std::process::exit(0));
        thread::spawn(|| std::process::exit(0));
        thread::sleep(Duration::MAX);
    }),
];

#[test]
fn profiles_at_exit() {
    let test = "profiles_at_exit";
    for (scenario, end) in ENDS {
        let directory = folder::tmp().join(format!("at exit, {scenario}"));
        if !child::any() {
            fs::remove_dir_all(&directory).ok();
        }
        let value = format!("heap,cpu,flight,goroutine:{}", directory.display());
        let variables = [("RTPROF_ADDR", "off"), ("RTPROF_FLIGHT", "on"), ("RTPROF_AT_EXIT", &*value)];
        with_variables(test, scenario, &variables, || {
            rtprof::set_mem_profile_rate(1);
            assert!(rtprof::init().expect("the folder can be written").is_none());
            let error = rtprof::init().expect_err("the files are asked for already").to_string();
            assert!(error.contains("RTPROF_AT_EXIT"), "{error}");
            kept_until_the_end();
            computes();
            rtprof::trace::log("test", "the last words");
            end();
        });
        if child::any() {
            continue;
        }
        let mut files: Vec<PathBuf> = fs::read_dir(&directory)
            .expect("the child has made it")
            .map(|entry| entry.expect("it can be read").path())
            .collect();
        files.sort();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        let profiles: Vec<_> = names.iter().map(|name| name.split('-').next().unwrap()).collect();
        assert_eq!(profiles, ["cpu", "flight", "goroutine", "heap"], "{scenario}: {names:?}");
        let bytes = |at: usize| fs::read(&files[at]).expect("it is complete");
        let profile = |at: usize| Profile::read(&bytes(at));
        assert!(!profile(0).samples_of("environment::computes").is_empty(), "{scenario}");
        assert!(bytes(1).windows(14).any(|words| words == b"the last words"), "{scenario}");
        assert!(!profile(2).samples().is_empty(), "{scenario}");
        let totals = profile(3).totals_of("environment::kept_until_the_end");
        assert_eq!(totals[2..], [1, 1 << 20], "{scenario}: {totals:?}");
    }
}
