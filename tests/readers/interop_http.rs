//! The real `go tool pprof` fetches from a live server: profiles, deltas over seconds, names of addresses, differences,
//! errors.
//!
//! pprof keeps a copy of each profile that it fetches. Its output for the server must equal its output for that file,
//! which is compared with our own reading; and it must give no warning.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};
use std::thread::{scope, sleep};
use std::time::Duration;

use rtprof::http::{Config, serve, serve_with};
use test_support::folder;
use test_support::go::{self, Go};
use test_support::profile::{ALLOC_SPACE, Profile};
use test_support::{Background, child, contention, top, until, web};

#[inline(never)]
fn keep_documents() -> Vec<Vec<u8>> {
    black_box((1..=40).map(|number| vec![1; number * 100]).collect())
}

#[inline(never)]
fn update_the_index() {
    static INDEX: rtprof::sync::Mutex<()> = rtprof::sync::Mutex::new(());
    scope(|scope| {
        let guard = INDEX.lock();
        let _waiter = contention::queue(scope, || drop(INDEX.lock()));
        sleep(Duration::from_millis(3));
        drop(guard);
    });
    black_box(());
}

#[inline(never)]
fn search_the_index() {
    for i in 0..100_000_u32 {
        black_box(i.wrapping_mul(i));
    }
}

#[inline(never)]
fn start_workers() {
    (0..3).for_each(|_| rtprof::thread::spawn(|| ()).join().expect("it ends"));
    black_box(());
}

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn record<T>(work: impl FnOnce() -> T) -> T {
    rtprof::set_mem_profile_rate(1);
    contention::record_everything();
    let done = work();
    rtprof::set_mem_profile_rate(0);
    contention::record_nothing();
    done
}

/// A server of a program that has worked and records nothing more, so that its totals stand still.
static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    record(|| {
        KEPT.lock().expect("nobody panics here").extend(keep_documents());
        (0..4).for_each(|_| update_the_index());
        start_workers();
    });
    serve("127.0.0.1:0").expect("a port is free").local_addr()
});

fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}/debug/pprof/{path}")
}

/// Returns a URL for a profile with all names, even on a busy machine.
fn named_url(address: SocketAddr, name: &str) -> String {
    url(address, &format!("{name}?symbolize=full"))
}

/// A folder for pprof's copies, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("interop-http-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        Self(folder::tmp().join(name))
    }

    fn run(&self, go: &Go, arguments: &[&str]) -> Output {
        let mut command = go.pprof_command();
        command.args(arguments).env("PPROF_TMPDIR", &self.0);
        child::finish(&mut command)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The result of a fetch by `go tool pprof`.
struct Fetched {
    text: String,
    /// The saved profile.
    file: PathBuf,
    _folder: Folder,
}

impl Fetched {
    fn read(&self) -> Profile {
        Profile::read(&std::fs::read(&self.file).expect("pprof has saved it"))
    }
}

/// Fetches a profile. Any text on standard error that is not about the fetch is a warning, and a failure.
fn fetch(go: &Go, arguments: &[&str]) -> Fetched {
    let folder = Folder::new();
    let output = folder.run(go, &[&top::EVERYTHING, arguments].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_usual = |line: &str| {
        line.starts_with("Fetching profile over HTTP from ")
            || line.starts_with("Saved profile in ")
            || line.starts_with("Please wait... (")
    };
    let is_clean = stderr.lines().all(is_usual) && stderr.contains("Fetching profile over HTTP from ");
    assert!(
        output.status.success() && is_clean,
        "Go {}: {arguments:?}\n{}",
        go.version,
        child::report(&output)
    );
    let saved = stderr.lines().find_map(|line| line.strip_prefix("Saved profile in "));
    let file = PathBuf::from(saved.expect("what was fetched is saved"));
    assert!(file.starts_with(&folder.0), "{file:?}");
    Fetched { text: String::from_utf8(output.stdout).expect("pprof prints UTF-8"), file, _folder: folder }
}

/// Checks that pprof prints the same for a live server as for the file, and as our own reading.
fn check_top(go: &Go, fetched: &Fetched, kind: &str, unit: &str, value: usize) {
    top::check(go, &fetched.file, kind, unit, top::expected(&fetched.read().samples(), value));
}

#[test]
fn profiles_are_fetched() {
    child::isolated("profiles_are_fetched", || {
        let cases = [
            ("heap", "alloc_space", "B", 1, "keep_documents"),
            ("allocs", "alloc_objects", "count", 0, "keep_documents"),
            ("block", "delay", "ns", 1, "update_the_index"),
            ("mutex", "contentions", "count", 0, "update_the_index"),
            ("threadcreate", "threadcreate", "count", 0, "start_workers"),
            ("goroutine", "goroutine", "count", 0, "waits_for_work"),
        ];
        let (work, no_work) = rtprof::sync::mpsc::channel::<()>();
        let waiting = rtprof::thread::spawn(move || waits_for_work(&no_work));
        until("it waits", || {
            let all = rtprof::goroutine_profile();
            all.iter().any(|goroutine| {
                goroutine.name.contains("profiles_are_fetched") && goroutine.wait_reason().is_some()
            })
        });
        for go in go::toolchains("profiles_are_fetched") {
            for (name, kind, unit, value, function) in cases {
                let (index, url) = (format!("-sample_index={kind}"), named_url(*SERVER, name));
                for form in ["-top", "-raw", "-traces"] {
                    let fetched = fetch(&go, &[form, &index, &url]);
                    let file = fetched.file.to_str().expect("a plain name");
                    let saved = go.pprof(&[&top::EVERYTHING[..], &[form, &index, file]].concat());
                    assert_eq!(fetched.text, saved, "Go {}: {form} {name}", go.version);
                    let function = format!("interop_http::{function}");
                    assert!(fetched.text.contains(&function), "Go {}: {form} {name}: {saved}", go.version);
                    if form == "-top" && unit != "ns" {
                        check_top(&go, &fetched, kind, unit, value);
                    }
                }
            }
        }
        drop(work);
        waiting.join().expect("it has ended");
    });
}

#[inline(never)]
fn waits_for_work(work: &rtprof::sync::mpsc::Receiver<()>) {
    work.recv().ok();
}

/// Profiles that are off have no sample, and cause no warning either.
#[test]
fn profiles_that_are_off_are_fetched() {
    child::isolated("profiles_that_are_off_are_fetched", || {
        let address = serve("127.0.0.1:0").expect("a port is free").local_addr();
        for go in go::toolchains("profiles_that_are_off_are_fetched") {
            for (name, remark) in [
                ("block", "rtprof: the block profile is off; set_block_profile_rate switches it on"),
                ("mutex", "rtprof: the mutex profile is off; set_mutex_profile_fraction switches it on"),
                ("threadcreate", "rtprof: no thread was created by rtprof::thread yet; others are not known"),
            ] {
                let text = fetch(&go, &["-top", &url(address, name)]).text;
                assert!(text.contains(remark), "Go {}: {text}", go.version);
                assert!(
                    text.contains("Showing nodes accounting for 0, 0% of 0 total"),
                    "Go {}: {text}",
                    go.version
                );
            }
        }
    });
}

/// Fetches what a profile counts within a second, and checks that this is there, and the length that pprof shows.
fn fetch_seconds(go: &Go, address: SocketAddr, name: &str, kind: &str, function: &str) {
    let index = format!("-sample_index={kind}");
    // By default pprof waits only half a second longer than the requested second.
    let options = ["-top", "-seconds=1", "-timeout=200", &index];
    let fetched = fetch(go, &[&options[..], &[&named_url(address, name)]].concat());
    let text = &fetched.text;
    let shown = text.split("Duration: ").nth(1).expect(text).split(',').next().expect(text);
    assert!(text.contains(&format!("interop_http::{function}")), "Go {}: {text}", go.version);
    let (value, unit) = match kind {
        "alloc_space" => (1, "B"),
        "cpu" => (1, "ns"),
        _ => (0, "count"),
    };
    check_top(go, &fetched, kind, unit, value);
    let profile = fetched.read();
    let length = profile.duration_nanos as f64 / 1e9;
    assert!((1.0..200.0).contains(&length), "{name}");
    let off = (top::seconds(shown) - length).abs();
    assert!(off <= 0.01 * length, "Go {}: {shown} for {length} s", go.version);
}

#[test]
fn seconds_are_waited_for() {
    child::isolated("seconds_are_waited_for", || {
        rtprof::set_mem_profile_rate(1);
        contention::record_everything();
        let address = serve("127.0.0.1:0").expect("a port is free").local_addr();
        let before = keep_documents();
        let background = Background::default();
        scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                background.repeat(|| {
                    drop(keep_documents());
                    update_the_index();
                });
            });
            // A thread that waits between its steps may get no CPU sample in a second; this thread only computes.
            scope.spawn(|| background.repeat(search_the_index));
            for go in go::toolchains("seconds_are_waited_for") {
                // Each of these waits for a second: all at once.
                let all = [
                    ("heap", "alloc_space", "keep_documents"),
                    ("allocs", "alloc_space", "keep_documents"),
                    ("block", "contentions", "update_the_index"),
                    ("mutex", "contentions", "update_the_index"),
                    ("profile", "cpu", "search_the_index"),
                ];
                let fetches = all.map(|(name, kind, function)| {
                    let go = go.clone();
                    scope.spawn(move || fetch_seconds(&go, address, name, kind, function))
                });
                for fetch in fetches {
                    fetch.join().expect("a fetch that failed has said why");
                }
            }
        });
        drop(before);
    });
}

/// Names come from the server alone: pprof must not read the program's file, which is on this machine.
#[test]
fn addresses_are_named_by_the_server() {
    child::isolated("addresses_are_named_by_the_server", || {
        let bare = url(*SERVER, "heap?symbolize=none");
        let lean = Config { symbolize: false, ..Config::default() };
        let lean = serve_with("127.0.0.1:0", lean).expect("a port is free").local_addr();
        for go in go::toolchains("addresses_are_named_by_the_server") {
            let index = "-sample_index=alloc_space";
            let text = fetch(&go, &["-top", "-symbolize=none", index, &bare]).text;
            assert!(!text.contains("keep_documents"), "Go {}: {text}", go.version);
            for url in [&bare, &url(lean, "heap")] {
                let text = fetch(&go, &["-top", "-symbolize=remote", index, url]).text;
                assert!(text.contains("interop_http::keep_documents"), "Go {}: {text}", go.version);
            }
            // Without demangling, which takes the names for C++ and shortens them, the names are exactly the server's.
            let fetched = fetch(&go, &["-top", "-symbolize=remote:demangle=none", index, &bare]);
            let profile = fetched.read();
            let addresses: Vec<_> =
                profile.location.iter().map(|location| format!("{:#x}", location.address)).collect();
            let posted = web::request(*SERVER, "POST", "/debug/pprof/symbol", &[], &addresses.join("+"));
            let posted = web::exchange(*SERVER, posted).expect("an answer");
            let names: BTreeMap<_, _> =
                posted.text().lines().skip(1).filter_map(|line| line.split_once(' ')).collect();
            for location in &profile.location {
                let function = profile
                    .function
                    .iter()
                    .find(|entry| Some(entry.id) == location.line.first().map(|line| line.function_id));
                let name = names.get(&*format!("{:#x}", location.address)).copied();
                assert_eq!(function.map(|function| profile.text(function.name)), name, "Go {}", go.version);
            }
            assert!(profile.totals_of("interop_http::keep_documents")[ALLOC_SPACE] > 82_000);
        }
    });
}

/// Differences, as in a search for leaks.
#[test]
fn differences_are_of_two_fetches() {
    child::isolated("differences_are_of_two_fetches", || {
        let heap = named_url(*SERVER, "heap");
        let index = "-sample_index=alloc_space";
        for go in go::toolchains("differences_are_of_two_fetches") {
            for base in ["-base", "-diff_base"] {
                // Both profiles come from the server, at one time.
                let text = fetch(&go, &["-top", index, &format!("{base}={heap}"), &heap]).text;
                assert!(text.contains("Showing nodes accounting for 0, 0%"), "Go {}: {text}", go.version);
                // The difference from an earlier profile.
                let earlier = fetch(&go, &["-raw", &heap]);
                let bytes = earlier.read().totals_of("keep_documents")[ALLOC_SPACE];
                record(|| drop(keep_documents()));
                let base = format!("{base}={}", earlier.file.display());
                let fetched = fetch(&go, &["-top", "-cum", "-unit=B", index, &base, &heap]);
                let line = fetched.text.lines().find(|line| line.ends_with("interop_http::keep_documents"));
                let line = line.unwrap_or_else(|| panic!("Go {}: {}", go.version, fetched.text));
                // 40 documents of 100 to 4000 bytes, and their list.
                let added = (1..=40).sum::<i64>() * 100 + 40 * size_of::<Vec<u8>>() as i64;
                assert!(line.contains(&format!(" {added}B ")), "Go {}: {line}", go.version);
                let later = web::profile(*SERVER, "heap");
                assert_eq!(later.totals_of("keep_documents")[ALLOC_SPACE], bytes + added);
            }
        }
    });
}

#[test]
fn a_token_is_the_password_of_a_url() {
    child::isolated("a_token_is_the_password_of_a_url", || {
        let config = Config { token: Some("s3cret".into()), ..Config::default() };
        let address = serve_with("127.0.0.1:0", config).expect("a port is free").local_addr();
        LazyLock::force(&SERVER);
        for go in go::toolchains("a_token_is_the_password_of_a_url") {
            let index = "-sample_index=alloc_space";
            let heap = format!("http://any:s3cret@{address}/debug/pprof/heap");
            let named = format!("{heap}?symbolize=full");
            assert!(fetch(&go, &["-top", index, &named]).text.contains("interop_http::keep_documents"));
            // The password is sent with the request for names too.
            let bare = format!("{heap}?symbolize=none");
            let text = fetch(&go, &["-top", "-symbolize=remote", index, &bare]).text;
            assert!(text.contains("interop_http::keep_documents"), "Go {}: {text}", go.version);
            let without = "401 Unauthorized - a token is required: Authorization: Bearer TOKEN, or the token as a password";
            check_error(&go, &url(address, "heap"), without);
            let wrong = format!("http://any:wrong@{address}/debug/pprof/heap");
            check_error(&go, &wrong, "401 Unauthorized - the token is not the right one");
        }
    });
}

/// Checks that pprof fails, and shows the reason.
fn check_error(go: &Go, url: &str, message: &str) {
    let output = Folder::new().run(go, &["-top", url]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Some versions do not print the password.
    let told = format!("server response: {message}\n");
    assert!(
        !output.status.success() && stderr.contains(&told),
        "Go {}: {url}: {}",
        go.version,
        child::report(&output)
    );
}

#[test]
fn errors_are_shown() {
    for go in go::toolchains("errors_are_shown") {
        for (path, message) in [
            ("unknown", "404 Not Found - Unknown profile"),
            (
                "heap?seconds=0",
                "400 Bad Request - invalid value for \"seconds\" - must be a positive integer",
            ),
            (
                "heap?seconds=601",
                "400 Bad Request - \"seconds\" is 601, but this server captures for at most 600 (Config::max_seconds)",
            ),
            (
                "heap?format=svg",
                "400 Bad Request - invalid value for \"format\" - must be \"top\", \"collapsed\" or \"flamegraph\"",
            ),
        ] {
            check_error(&go, &url(*SERVER, path), message);
        }
        let taken =
            rtprof::pprof::CpuCapture::start(&Default::default()).expect("no other test takes one now");
        let message =
            "500 Internal Server Error - Could not enable CPU profiling: cpu profiling already in use";
        check_error(&go, &url(*SERVER, "profile?seconds=1"), message);
        drop(taken);
        // A text that is no profile is refused.
        let output = Folder::new().run(&go, &["-top", &url(*SERVER, "heap?format=collapsed")]);
        assert!(!output.status.success(), "Go {}: {}", go.version, child::report(&output));
    }
}
