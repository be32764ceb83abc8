//! `/debug/pprof/profile`: a CPU profile of the requested time, one at a time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rtprof::http::serve;
use rtprof::pprof::{CpuCapture, CpuProfileOptions};
use test_support::profile::Profile;
use test_support::signals::is_sampled;
use test_support::web::{self, Connection, End};
use test_support::{Background, child, sample_types, until};

const REFUSED: &str = "Could not enable CPU profiling: cpu profiling already in use\n";

#[inline(never)]
fn spins() {
    for i in 0..100_000_u32 {
        black_box(i.wrapping_mul(i));
    }
}

/// Runs `f` with a server, while another thread computes.
fn beside_work(test: &str, f: impl FnOnce(SocketAddr)) {
    child::isolated(test, || {
        let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
        let background = Background::default();
        thread::scope(|scope| {
            let _ends = background.ends_here();
            thread::Builder::new()
                .name("spinner".into())
                .spawn_scoped(scope, || background.repeat(spins))
                .unwrap();
            f(server);
        });
    });
}

#[test]
fn a_profile_is_of_the_time_that_was_asked_for() {
    beside_work("a_profile_is_of_the_time_that_was_asked_for", |server| {
        let started = Instant::now();
        let answer = web::get(server, "/debug/pprof/profile?seconds=1&debug=1&threads=1&symbolize=full");
        let took = started.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("Content-Type"), Some("application/octet-stream"));
        assert_eq!(answer.header("Content-Disposition"), Some("attachment; filename=\"profile\""));
        let profile = Profile::read(&answer.body);
        assert_eq!(profile.sample_types(), sample_types::of("profile"));
        assert_eq!(profile.period, 10_000_000);
        let duration = Duration::from_nanos(profile.duration_nanos as u64);
        assert!(duration >= Duration::from_secs(1) && duration <= took, "{duration:?} of {took:?}");
        let samples = profile.samples_of("cpu::spins");
        let names: Vec<_> = samples.iter().map(|sample| sample.labels.get("thread name")).collect();
        let is_spinner = |name: &Option<&String>| name.is_some_and(|name| name == "spinner");
        assert!(!names.is_empty() && names.iter().all(is_spinner), "{names:?}");
        assert!(profile.comments().contains("100 samples in a second of processor time, by "));
    });
}

#[test]
fn forms() {
    beside_work("forms", |server| {
        let collapsed = web::get(server, "/debug/pprof/profile?seconds=1&format=collapsed");
        let line = collapsed.text().lines().find(|line| line.contains("cpu::spins")).expect("it is there");
        let nanos: i64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(nanos > 0 && nanos % 10_000_000 == 0, "of processor time: {line}");
        for (query, message) in [
            ("format=svg", "invalid value for \"format\" - must be \"top\", \"collapsed\" or \"flamegraph\""),
            (
                "format=collapsed&sample_index=x",
                "invalid value for \"sample_index\" - profile has samples, cpu",
            ),
            ("symbolize=x", "invalid value for \"symbolize\" - must be \"none\" or \"full\""),
        ] {
            let answer = web::get(server, &format!("/debug/pprof/profile?seconds=1&{query}"));
            assert_eq!((answer.status, answer.text()), (400, &*format!("{message}\n")));
        }
        let head = web::ask(server, "HEAD", "/debug/pprof/profile?seconds=30", &[]);
        assert_eq!((head.status, head.end), (200, End::None));
        assert!(!is_sampled(), "nothing is taken for a HEAD");
    });
}

/// The page says that the profile is being recorded, and ends as a flame graph.
#[test]
fn a_page_says_that_it_is_recording() {
    beside_work("a_page_says_that_it_is_recording", |server| {
        let mut client = Connection::open(server).unwrap();
        let target = "/debug/pprof/profile?seconds=1&format=flamegraph";
        client.send(web::request(server, "GET", target, &[], "")).unwrap();
        let head = client.head().unwrap();
        assert_eq!((head.status, head.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
        let mut page = String::new();
        let mut while_recording = 0;
        loop {
            let chunk = client.chunk().unwrap();
            if chunk.is_empty() {
                break;
            }
            page.push_str(&String::from_utf8(chunk).unwrap());
            if !page.contains("#recording { display: none; }</style>") {
                while_recording = page.len();
            }
        }
        let (first, rest) = page.split_at(while_recording);
        assert!(first.contains("Recording profile of ") && first.contains(" for 1 second."), "{first}");
        assert!(rest.starts_with("<style>#recording { display: none; }</style>"), "{rest}");
        assert!(!first.contains("cpu::spins") && rest.contains("cpu::spins"));
        assert!(rest.trim_end().ends_with("</html>") && !is_sampled());
    });
}

#[test]
fn one_at_a_time() {
    beside_work("one_at_a_time", |server| {
        let own = CpuCapture::start(&CpuProfileOptions::default()).unwrap();
        for query in ["", "?seconds=1", "?format=flamegraph"] {
            let answer = web::get(server, &format!("/debug/pprof/profile{query}"));
            assert_eq!(
                (answer.status, answer.text(), answer.header("X-Go-Pprof")),
                (500, REFUSED, Some("1"))
            );
        }
        drop(own);
        until("the own profile is over: its drop does not wait", || !is_sampled());
        // A client that goes away ends its profile, in either form.
        for format in ["", "&format=flamegraph"] {
            let mut client = Connection::open(server).unwrap();
            let target = format!("/debug/pprof/profile?seconds=600{format}");
            client.send(web::request(server, "GET", &target, &[], "")).unwrap();
            until("it is taken", is_sampled);
            let answer = web::get(server, "/debug/pprof/profile?seconds=1");
            assert_eq!((answer.status, answer.text()), (500, REFUSED));
            assert!(rtprof::pprof::start_cpu_profile(std::io::sink()).is_err());
            drop(client);
            until("its client is gone", || !is_sampled());
        }
    });
}
