//! The answers of a live server to every path, parameter and method: status, headers and body, to the byte.
//!
//! The answers are those of Go's `net/http/pprof`, and clients depend on their wording: `go tool pprof` prints an
//! error's body if `X-Go-Pprof` is present, and scrapers identify a profile by its type.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rtprof::http::{Config, serve, serve_with};
use rtprof::pprof;
use test_support::profile::Profile;
use test_support::web::{self, Answer, End};
use test_support::{child, sample_types};

/// Returns the server of this test, unless it configures one.
fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| serve("127.0.0.1:0").expect("a port is free").local_addr())
}

const NOSNIFF: &str = "X-Content-Type-Options: nosniff";
const TEXT: &str = "Content-Type: text/plain; charset=utf-8";
const PAGE: [&str; 3] = [
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Content-Type: text/html; charset=utf-8",
    NOSNIFF,
];

#[track_caller]
fn check(answer: &Answer, status: u16, headers: &[&str]) {
    let mut expected = headers.to_vec();
    expected.sort_unstable();
    assert_eq!((answer.status, answer.own_headers()), (status, expected.iter().map(|&h| h.into()).collect()));
    assert!(answer.header("Date").is_some(), "{answer:?}");
}

/// Checks an error as Go's `serveError` sends it, with `more` headers.
#[track_caller]
fn check_error(answer: &Answer, status: u16, more: &[&str], message: &str) {
    check(answer, status, &[&[NOSNIFF, TEXT, "X-Go-Pprof: 1"], more].concat());
    assert_eq!(answer.text(), format!("{message}\n"));
    assert_eq!(answer.end, End::Length);
}

#[track_caller]
fn check_file(answer: &Answer, name: &str, sample_types: &[(&str, &str)]) -> Profile {
    let disposition = format!("Content-Disposition: attachment; filename=\"{name}\"");
    check(answer, 200, &["Content-Type: application/octet-stream", &disposition, NOSNIFF]);
    let profile = Profile::read(&answer.body);
    assert_eq!(profile.sample_types(), sample_types, "{name}");
    profile
}

/// The built-in profiles that are looked up.
const BUILT_IN: [&str; 6] = ["heap", "allocs", "block", "mutex", "threadcreate", "goroutine"];

#[test]
fn profiles_are_files_or_texts() {
    child::isolated("profiles_are_files_or_texts", || {
        let beginnings = [
            ("heap", "heap profile: "),
            ("allocs", "heap profile: "),
            ("block", "--- contention:\ncycles/second="),
            ("mutex", "--- mutex:\ncycles/second="),
            ("threadcreate", "threadcreate profile: total "),
            ("goroutine", "goroutine profile: total "),
        ];
        for (name, (_, beginning)) in BUILT_IN.into_iter().zip(beginnings) {
            let sample_types = sample_types::of(name);
            let path = format!("/debug/pprof/{name}");
            // A value that is no number counts as 0, as in Go.
            for query in [
                "",
                "?",
                "?debug=0",
                "?debug=",
                "?debug=x",
                "?debug=1;a=b",
                "?gc=1",
                "?x=%zz",
                "?symbolize=full",
            ] {
                let profile = check_file(&web::get(server(), &format!("{path}{query}")), name, sample_types);
                assert_eq!(profile.duration_nanos, 0, "{name}: a state has no duration");
                assert!(profile.time_nanos > 0);
            }
            for query in
                ["?debug=1", "?debug=2", "?debug=-1", "?debug=%2B1", "?debug=1&gc=1", "?%64ebug=1&debug=0"]
            {
                let answer = web::get(server(), &format!("{path}{query}"));
                check(&answer, 200, &[TEXT, NOSNIFF]);
                let beginning = match (name, query) {
                    ("goroutine", "?debug=2") => "goroutine ",
                    _ => beginning,
                };
                assert!(answer.text().starts_with(beginning), "{name}{query}: {}", answer.text());
                assert!(answer.text().ends_with('\n'), "{name}{query}: {}", answer.text());
            }
        }
        let goroutine = Profile::read(&web::get(server(), "/debug/pprof/goroutine").body);
        assert!(!goroutine.sample.is_empty(), "at least the server's own thread");
    });
}

#[test]
fn forms_of_our_own() {
    child::isolated("forms_of_our_own", || {
        for name in BUILT_IN {
            let sample_types = sample_types::of(name);
            let path = format!("/debug/pprof/{name}");
            let kind = sample_types[0].0;
            for query in [
                "format=collapsed",
                &format!("format=collapsed&sample_index={kind}"),
                "format=collapsed&seconds=",
            ] {
                check(&web::get(server(), &format!("{path}?{query}")), 200, &[TEXT, NOSNIFF]);
            }
            for query in ["format=flamegraph", &format!("sample_index={kind}&format=flamegraph")] {
                let answer = web::get(server(), &format!("{path}?{query}"));
                check(&answer, 200, &PAGE);
                assert!(answer.text().starts_with("<!DOCTYPE html>"), "{name}");
                assert!(
                    answer.text().contains(&format!("\"name\":\"{name}\"")),
                    "{name}: the page has its data"
                );
            }
            check_file(&web::get(server(), &format!("{path}?symbolize=none")), name, sample_types);
        }
    });
}

#[test]
fn pages_and_texts() {
    child::isolated("pages_and_texts", || {
        for (path, status, to) in [
            ("/", 302, "/debug/pprof/"),
            ("/debug/pprof", 301, "pprof/"),
            ("/debug/pprof?debug=1", 301, "pprof/"),
        ] {
            let answer = web::get(server(), path);
            check(&answer, status, &[&format!("Location: {to}"), TEXT, NOSNIFF]);
            assert_eq!(answer.text(), format!("see {to}\n"), "{path}");
        }
        let answer = web::get(server(), "/debug/pprof//heap?gc=1&debug=1");
        check(&answer, 200, &[TEXT, NOSNIFF]);
        for path in
            ["/debug/pprof/../../\\evil.example/", "/debug/pprof/../..//evil.example", "//evil.example/"]
        {
            let answer = web::get(server(), path);
            check(&answer, 404, &[TEXT, NOSNIFF, "X-Go-Pprof: 1"]);
        }

        for path in [
            "/debug/pprof/",
            "/debug/pprof/?debug=1",
            "/debug/pprof/#heap",
            "/debug/pprof//",
            "/debug/pprof/x/..",
        ] {
            let answer = web::get(server(), path);
            check(&answer, 200, &PAGE);
            for name in [
                "allocs",
                "block",
                "goroutine",
                "heap",
                "mutex",
                "profile",
                "symbol",
                "threadcreate",
                "trace",
            ] {
                assert!(answer.text().contains(&format!("<a href=\"{name}")), "{name} is on the page");
            }
            // The page names an endpoint that is off, but does not link to it.
            assert!(answer.text().contains("<td>cmdline</td>"), "cmdline is on the page");
        }
        for query in ["", "?", "?0x0", "?nonsense", "?0x1+0x2"] {
            let answer = web::get(server(), &format!("/debug/pprof/symbol{query}"));
            check(&answer, 200, &[TEXT, NOSNIFF]);
            assert_eq!(answer.text(), "num_symbols: 1\n", "{query}");
        }
    });
}

#[test]
fn errors() {
    child::isolated("errors", || {
        let profile = "Could not enable CPU profiling: cpu profiling already in use";
        let (unknown, seconds) =
            ("Unknown profile", "invalid value for \"seconds\" - must be a positive integer");
        let (unsupported, incompatible) = (
            "\"seconds\" parameter is not supported for this profile type",
            "seconds and debug params are incompatible",
        );
        let (format, both) = (
            "invalid value for \"format\" - must be \"top\", \"collapsed\" or \"flamegraph\"",
            "format and debug params are incompatible",
        );
        let symbolize = "invalid value for \"symbolize\" - must be \"none\" or \"full\"";
        let long = |seconds: &str| {
            format!(
                "\"seconds\" is {seconds}, but this server captures for at most 600 (Config::max_seconds)"
            )
        };
        let indexes = "invalid value for \"sample_index\" - heap has alloc_objects, alloc_space, inuse_objects, inuse_space";
        let _own = pprof::Profile::new("contract/errors").expect("the name is free");
        let cases = [
            ("/x", 404, "404 page not found"),
            ("/debug", 404, "404 page not found"),
            ("/debug/pprofx", 404, "404 page not found"),
            ("/debug/pprof/x", 404, unknown),
            ("/debug/pprof/Heap", 404, unknown),
            ("/debug/pprof/heap/", 404, unknown),
            ("/debug/pprof/heap%00", 404, unknown),
            ("/debug/pprof/%ff", 404, unknown),
            ("/debug/pprof/%zz", 400, "invalid URL escape in the path"),
            ("/debug/pprof/%", 400, "invalid URL escape in the path"),
            ("/debug/pprof/cmdline", 404, "cmdline is off; Config::cmdline allows it"),
            ("/debug/pprof/profile?seconds=601", 400, &long("601")),
            ("/debug/pprof/trace?seconds=600.5", 400, &long("600.5")),
            ("/debug/pprof/heap?seconds=0", 400, seconds),
            ("/debug/pprof/heap?seconds=-1", 400, seconds),
            ("/debug/pprof/heap?seconds=x", 400, seconds),
            ("/debug/pprof/heap?seconds=1.5", 400, seconds),
            ("/debug/pprof/heap?seconds=99999999999999999999", 400, seconds),
            ("/debug/pprof/heap?seconds=601", 400, &long("601")),
            ("/debug/pprof/heap?seconds=9223372036854775807", 400, &long("9223372036854775807")),
            ("/debug/pprof/heap?seconds=1&debug=1", 400, incompatible),
            ("/debug/pprof/heap?seconds=1&debug=99999999999999999999", 400, incompatible),
            ("/debug/pprof/goroutine?seconds=1&debug=2", 400, incompatible),
            ("/debug/pprof/contract/errors?seconds=1", 400, unsupported),
            // The order of Go's checks: name, number, support, debug.
            ("/debug/pprof/x?seconds=0&debug=1", 404, unknown),
            ("/debug/pprof/contract/errors?seconds=0&debug=1", 400, seconds),
            ("/debug/pprof/contract/errors?seconds=1&debug=1", 400, unsupported),
            ("/debug/pprof/heap?seconds=0&debug=1", 400, seconds),
            // Then our own checks.
            ("/debug/pprof/heap?seconds=1&debug=1&format=x", 400, incompatible),
            ("/debug/pprof/heap?format=svg", 400, format),
            ("/debug/pprof/heap?format=Collapsed", 400, format),
            ("/debug/pprof/heap?format=collapsed&debug=1", 400, both),
            ("/debug/pprof/heap?symbolize=local", 400, symbolize),
            ("/debug/pprof/heap?format=collapsed&sample_index=cpu", 400, indexes),
            ("/debug/pprof/heap?format=flamegraph&sample_index=4", 400, indexes),
            (
                "/debug/pprof/mutex?format=collapsed&sample_index=inuse_space",
                400,
                "invalid value for \"sample_index\" - mutex has contentions, delay",
            ),
        ];
        for (path, status, message) in cases {
            check_error(&web::get(server(), path), status, &[], message);
            let head = web::ask(server(), "HEAD", path, &[]);
            check(&head, status, &[NOSNIFF, TEXT, "X-Go-Pprof: 1"]);
            assert_eq!(head.end, End::None, "{path}");
        }
        let _taken =
            pprof::CpuCapture::start(&pprof::CpuProfileOptions::default()).expect("no other test takes one");
        for query in ["", "?seconds=600", "?seconds=x&debug=1"] {
            check_error(&web::get(server(), &format!("/debug/pprof/profile{query}")), 500, &[], profile);
        }
    });
}

#[test]
fn methods() {
    child::isolated("methods", || {
        let root = "/debug/pprof/";
        let paths = [
            ("heap", "GET, HEAD"),
            ("delta_heap", "GET, HEAD"),
            ("profile", "GET, HEAD"),
            ("trace", "GET, HEAD"),
            ("cmdline", "GET, HEAD"),
            ("unknown", "GET, HEAD"),
            ("", "GET, HEAD"),
            ("symbol", "GET, HEAD, POST"),
        ];
        for method in [
            "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "Get", "GETX", "PROPFIND",
        ] {
            for (path, allowed) in paths {
                if method == "POST" && path == "symbol" {
                    continue;
                }
                let answer = web::ask(server(), method, &format!("{root}{path}"), &[]);
                check_error(&answer, 405, &[&format!("Allow: {allowed}")], "Method Not Allowed");
            }
        }
        // An unknown target is not found with any method.
        for (method, target) in [("OPTIONS", "*"), ("POST", "/x"), ("CONNECT", "localhost:80")] {
            check_error(&web::ask(server(), method, target, &[]), 404, &[], "404 page not found");
        }
    });
}

/// A HEAD answers as a GET would, but at once: a scraper's check that a profile exists takes no profile.
#[test]
fn head_captures_nothing() {
    child::isolated("head_captures_nothing", || {
        let paths = [
            "",
            "heap",
            "allocs?debug=1",
            "block",
            "threadcreate?format=flamegraph",
            "heap?format=collapsed",
            "symbol",
        ];
        for path in paths {
            let path = format!("/debug/pprof/{path}");
            let (got, head) = (web::get(server(), &path), web::ask(server(), "HEAD", &path, &[]));
            assert_eq!((head.status, head.own_headers()), (got.status, got.own_headers()), "{path}");
            assert_eq!((head.body.as_slice(), head.end), (&b""[..], End::None));
        }
        let started = Instant::now();
        let answer = web::ask(server(), "HEAD", "/debug/pprof/mutex?seconds=600", &[]);
        let disposition = "Content-Disposition: attachment; filename=\"mutex-delta\"";
        check(&answer, 200, &["Content-Type: application/octet-stream", disposition, NOSNIFF]);
        let answer = web::ask(server(), "HEAD", "/debug/pprof/delta_block", &[]);
        let disposition = "Content-Disposition: attachment; filename=\"delta_block\"";
        check(&answer, 200, &["Content-Type: application/octet-stream", disposition, NOSNIFF]);
        let answer = web::ask(server(), "HEAD", "/debug/pprof/trace?seconds=600", &[]);
        let disposition = "Content-Disposition: attachment; filename=\"trace\"";
        check(&answer, 200, &["Content-Type: application/octet-stream", disposition, NOSNIFF]);
        assert!(!rtprof::trace::is_enabled(), "nothing is recorded");
        assert!(started.elapsed() < Duration::from_secs(60), "it did not wait");
    });
}

#[inline(never)]
fn open_a_file(files: &pprof::Profile, key: usize) {
    files.add(std::hint::black_box(key), 0).expect("each key comes once");
}

/// A program's own profiles are found by their names, whatever characters they contain and however these are escaped.
#[test]
fn custom_profiles() {
    child::isolated("custom_profiles", || {
        let names = [
            ("app/open_files", "app/open_files", "app/open_files"),
            ("app/%6Fpen%5fmore", "app/open_more", "app/open_more"),
            ("app/%3Cb%3E%22quoted%22%3F%23%25", "app/<b>\"quoted\"?#%", "app/<b>_quoted_?#%"),
            ("app/sch%C3%B6n", "app/schön", "app/sch_n"),
            ("app/a+b&c=d;e", "app/a+b&c=d;e", "app/a+b&c=d;e"),
        ];
        for (path, name, file) in names {
            let files = pprof::Profile::new(name).expect("the name is free");
            (1..=3).for_each(|key| open_a_file(&files, key));
            files.remove(2);
            let path = format!("/debug/pprof/{path}");
            let profile = web::get(server(), &format!("{path}?symbolize=full"));
            let profile = check_file(&profile, file, &[(name, "count")]);
            let samples = profile.samples_of("open_a_file");
            assert_eq!(samples.iter().map(|sample| sample.values[0]).sum::<i64>(), 2, "{name}");
            let text = web::get(server(), &format!("{path}?debug=1"));
            assert!(text.text().starts_with(&format!("{name} profile: total 2\n")), "{}", text.text());
            let page = web::get(server(), &format!("{path}?format=flamegraph"));
            check(&page, 200, &PAGE);
            assert!(!page.text().contains("<b>\"quoted"), "names are escaped");
            let collapsed = web::get(server(), &format!("{path}?format=collapsed"));
            let sum: i64 = collapsed
                .text()
                .lines()
                .map(|line| line.rsplit_once(' ').expect("a value").1.parse::<i64>().expect("a number"))
                .sum();
            assert_eq!(sum, 2, "{name}");
        }
        let index = web::get(server(), "/debug/pprof/");
        assert!(
            index.text().contains("<td>2</td><td><a href=\"app%2Fopen_files?debug=1\">app/open_files</a>")
        );
        assert!(index.text().contains("app%2F%3Cb%3E%22quoted%22%3F%23%25?debug=1"), "links lead there");
        // An escape stands for its character in the path, so an escaped built-in name is found.
        check_file(&web::get(server(), "/debug/pprof/%68eap"), "heap", sample_types::of("heap"));
        // An escaped slash does not separate parts of the path.
        check_file(
            &web::get(server(), "/debug/pprof/app%2Fopen_files"),
            "app/open_files",
            &[("app/open_files", "count")],
        );
    });
}

#[test]
fn cmdline_is_the_arguments_if_allowed() {
    child::isolated("cmdline_is_the_arguments_if_allowed", || {
        let server =
            serve_with("127.0.0.1:0", Config { cmdline: true, ..Config::default() }).expect("a port is free");
        let answer = web::get(server.local_addr(), "/debug/pprof/cmdline?debug=1");
        check(&answer, 200, &[TEXT, NOSNIFF]);
        let arguments: Vec<_> = std::env::args().collect();
        assert_eq!(answer.text().split('\0').collect::<Vec<_>>(), arguments);
        let head = web::ask(server.local_addr(), "HEAD", "/debug/pprof/cmdline", &[]);
        check(&head, 200, &[TEXT, NOSNIFF]);
        server.shutdown();
    });
}

/// The longest capture follows the configuration; the checks before it do not.
#[test]
fn max_seconds() {
    child::isolated("max_seconds", || {
        let server = serve_with("127.0.0.1:0", Config { max_seconds: 2, ..Config::default() })
            .expect("a port is free");
        let get = |path: &str| web::get(server.local_addr(), &format!("/debug/pprof/{path}"));
        let message = |seconds| {
            format!("\"seconds\" is {seconds}, but this server captures for at most 2 (Config::max_seconds)")
        };
        check_error(&get("heap?seconds=3"), 400, &[], &message("3"));
        check_error(&get("profile?seconds=3"), 400, &[], &message("3"));
        check_error(&get("trace?seconds=2.5"), 400, &[], &message("2.5"));
        check_error(&get("unknown?seconds=3"), 404, &[], "Unknown profile");
        check_file(&get("mutex?seconds=1"), "mutex-delta", sample_types::of("mutex"));
        server.shutdown();
    });
}
