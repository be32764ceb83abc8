//! `/debug/pprof/trace`: a trace that streams, one at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rtprof::http::serve;
use rtprof::sync::mpsc::channel;
use rtprof::thread;
use rtprof::trace;
use rtprof_trace_check::{Event, EventType, perfetto};
use test_support::contention::{thread_id, wait_until_asleep};
use test_support::processor::burn;
use test_support::profile::{Profile, gunzip};
use test_support::signals::is_sampled;
use test_support::web::{self, Answer, Connection};
use test_support::{Background, PATIENCE, child, until};

const REFUSED: &str = "Could not enable tracing: execution tracer already enabled\n";

fn check(answer: &Answer) -> rtprof_trace_check::Parsed {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Content-Type"), Some("application/octet-stream"));
    assert_eq!(answer.header("Content-Disposition"), Some("attachment; filename=\"trace\""));
    rtprof_trace_check::validate(&answer.body).expect("Go's tools read it")
}

/// Checks that the thread that started the trace, and then writes it now and then, is not shown as computing.
fn check_ours(parsed: &rtprof_trace_check::Parsed) {
    let ours: Vec<_> = parsed.goroutines_named("rtprof-http").collect();
    assert!(!ours.is_empty(), "{:?}", parsed.goroutines().collect::<Vec<_>>());
    for goroutine in ours {
        let is_about = |event: &Event<'_>| event.g() == goroutine || event.target() == Some(goroutine);
        let story: Vec<_> = parsed.events().filter(is_about).collect();
        // A thread of an earlier connection may end.
        let last = story.last().map(Event::event_type);
        assert!([Some(EventType::GoSysBlock), Some(EventType::GoEnd)].contains(&last), "{story:#?}");
    }
}

#[track_caller]
fn check_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (500, REFUSED));
    assert_eq!(answer.header("X-Go-Pprof"), Some("1"));
}

/// The number of rounds that the background has completed.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

/// Runs a thread that begins, receives four messages, waits for each, and ends.
fn round() {
    let (send, receive) = channel();
    let (tx, rx) = std::sync::mpsc::channel();
    let worker = thread::Builder::new().name("worker".into());
    let worker = worker.spawn(move || {
        tx.send(thread_id()).expect("it listens");
        receive.iter().sum::<u32>()
    });
    let worker_id = rx.recv().expect("it has begun");
    (1..=4).for_each(|n| {
        thread::sleep(Duration::from_millis(1));
        wait_until_asleep(worker_id);
        send.send(n).expect("it listens");
    });
    drop(send);
    assert_eq!(worker.expect("a thread").join().ok(), Some(10));
    ROUNDS.fetch_add(1, Relaxed);
}

/// Starts the program's own trace, when the previous one has been written completely.
fn start_own() {
    until("the writer is done", || trace::start(std::io::sink()).is_ok());
}

/// Opens a client that has sent its request, and has begun to read.
fn asking(server: SocketAddr, seconds: &str) -> Connection {
    let mut connection = Connection::open(server).expect("the server listens");
    let request = format!("GET /debug/pprof/trace?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.send(request).expect("it reads");
    let head = connection.head().expect("it answers");
    assert_eq!(head.status, 200);
    connection
}

/// A single test, because a process has one trace at a time.
#[test]
fn traces_stream() {
    child::isolated("traces_stream", || {
        let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
        let background = Background::default();
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            s.spawn(|| background.repeat(round));

            a_whole_one(server);
            one_for_perfetto(server);
            compressed_ones(server);
            fractions_and_what_makes_no_sense(server);
            one_at_a_time(server);
            a_client_that_goes_away(server);
            a_stop_by_the_program(server);
        });
    });
}

/// Checks a trace in Perfetto's format, under a name that its viewers know, as [`a_whole_one`] does.
fn one_for_perfetto(server: SocketAddr) {
    let name = "attachment; filename=\"trace.perfetto-trace\"";
    for seconds in [1, 8, 32] {
        let target = format!("/debug/pprof/trace?seconds={seconds}&format=perfetto");
        let head = web::ask(server, "HEAD", &target, &[]);
        assert_eq!((head.status, head.header("Content-Disposition")), (200, Some(name)));
        let answer = web::get(server, &target);
        assert_eq!((answer.status, answer.header("Content-Disposition")), (200, Some(name)));
        let trace = perfetto::check(&answer.body).expect("it is right");
        let workers = trace.tracks_named("worker");
        let is_theirs = |slice: &&perfetto::Slice| workers.contains(&slice.begin.track);
        let waits = trace.slices.iter().filter(|slice| &*slice.begin.name == "channel receive");
        if waits.filter(is_theirs).count() >= 4 {
            return;
        }
    }
    panic!("no round in 32 s");
}

/// Checks that a trace is compressed for a client that unpacks it, or as a file if that is what the client wants.
fn compressed_ones(server: SocketAddr) {
    const GZIP: &str = "Accept-Encoding: deflate, gzip";
    for (query, header, coding, name) in [
        ("", "Accept-Encoding: br", None, "trace"),
        ("", GZIP, Some("gzip"), "trace"),
        ("&gzip=1", GZIP, None, "trace.gz"),
        ("&gzip=0", "Accept: */*", None, "trace"),
        ("&gzip=1&format=perfetto", "Accept: */*", None, "trace.perfetto-trace.gz"),
        ("&format=perfetto", GZIP, Some("gzip"), "trace.perfetto-trace"),
    ] {
        let target = format!("/debug/pprof/trace?seconds=0.1{query}");
        let answer = web::ask(server, "GET", &target, &[header]);
        assert_eq!((answer.status, answer.header("Content-Encoding")), (200, coding), "{query}");
        let name_there = format!("attachment; filename=\"{name}\"");
        assert_eq!(answer.header("Content-Disposition"), Some(&*name_there), "{query}");
        assert_eq!(answer.header("Vary"), coding.and(Some("accept-encoding")), "{query}");
        let head = web::ask(server, "HEAD", &target, &[header]);
        assert_eq!(head.own_headers(), answer.own_headers(), "{query}");
        let is_compressed = coding.is_some() || name.ends_with(".gz");
        let bytes = if is_compressed { gunzip(&answer.body) } else { answer.body };
        match query.contains("perfetto") {
            true => assert!(!perfetto::check(&bytes).expect("it is right").events.is_empty()),
            false => drop(rtprof_trace_check::validate(&bytes).expect("Go's tools read it")),
        }
    }
}

/// Checks that a trace contains the events of its time: at least ten rounds, in two seconds or in as many as the
/// machine takes for ten rounds.
fn a_whole_one(server: SocketAddr) {
    for seconds in [2, 8, 32] {
        let started = Instant::now();
        let target = format!("/debug/pprof/trace?seconds={seconds}");
        let client = std::thread::spawn(move || web::get(server, &target));
        until("it records", trace::is_enabled);
        let (first, mut last) = (ROUNDS.load(Relaxed), 0);
        until("it ends", || {
            let rounds = ROUNDS.load(Relaxed);
            let goes_on = trace::is_enabled();
            if goes_on {
                last = rounds;
            }
            !goes_on
        });
        let parsed = check(&client.join().expect("it reads"));
        let took = started.elapsed();
        assert!(took >= Duration::from_secs(seconds), "{took:?}");
        // The first round may have begun before the trace.
        let rounds = last.saturating_sub(first + 1);
        for (event, each) in [
            (EventType::GoCreate, 1),
            (EventType::GoEnd, 1),
            (EventType::GoBlockRecv, 4),
            (EventType::GoSleep, 4),
            (EventType::GoUnblock, 4),
        ] {
            let (count, least) = (parsed.count(event), rounds * each);
            assert!(count >= least, "{event:?}: {count} of {least}");
        }
        check_ours(&parsed);
        if rounds >= 10 {
            return;
        }
    }
    panic!("not ten rounds in 32 seconds");
}

fn fractions_and_what_makes_no_sense(server: SocketAddr) {
    let queries =
        [("?seconds=0.2", 0.2), ("?seconds=1e-9", 0.0), ("", 1.0), ("?seconds=x", 1.0), ("?seconds=-3", 1.0)];
    for (query, least) in queries {
        let started = Instant::now();
        check(&web::get(server, &format!("/debug/pprof/trace{query}")));
        let took = started.elapsed();
        assert!((Duration::from_secs_f64(least)..PATIENCE).contains(&took), "{query} took {took:?}");
    }
}

fn one_at_a_time(server: SocketAddr) {
    let mut first = asking(server, "600");
    until("it records", trace::is_enabled);
    check_refused(&web::get(server, "/debug/pprof/trace?seconds=1"));
    assert!(matches!(trace::start(std::io::sink()), Err(trace::TraceError::AlreadyStarted)));
    // Profiles do not wait for the trace.
    assert_eq!(web::get(server, "/debug/pprof/heap").status, 200);
    assert!(trace::is_enabled());
    first.end_sending().expect("it is open");
    until("it ends", || !trace::is_enabled());
    drop(first);

    start_own();
    check_refused(&web::get(server, "/debug/pprof/trace"));
    trace::stop().expect("a sink takes everything");
    check(&web::get(server, "/debug/pprof/trace?seconds=0.1"));
}

/// Checks that the trace ends soon after its client is gone, and the next one can begin.
fn a_client_that_goes_away(server: SocketAddr) {
    let connection = asking(server, "600");
    until("it records", trace::is_enabled);
    drop(connection);
    until("nobody wants it", || !trace::is_enabled());
    let started = Instant::now();
    loop {
        let answer = web::get(server, "/debug/pprof/trace?seconds=0.1");
        if answer.status == 200 {
            check(&answer);
            break;
        }
        check_refused(&answer);
        assert!(started.elapsed() < PATIENCE);
    }
    // A client that sends a request and never reads.
    let mut silent = TcpStream::connect(server).expect("the server listens");
    silent
        .write_all(b"GET /debug/pprof/trace?seconds=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    until("it records", trace::is_enabled);
    until("it ends", || !trace::is_enabled());
}

/// In a program that does nothing there is nothing to write, so no write fails.
#[test]
fn a_client_leaves_a_quiet_program() {
    child::isolated("a_client_leaves_a_quiet_program", || {
        let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
        let connection = asking(server, "600");
        let started = Instant::now();
        until("the state of all threads is written", || started.elapsed() > Duration::from_secs(3));
        assert!(trace::is_enabled());
        drop(connection);
        until("nobody wants it", || !trace::is_enabled());
    });
}

/// Checks that a stop by the program ends the endpoint's trace, as Go's `trace.Stop` does; the recorded part is sent.
fn a_stop_by_the_program(server: SocketAddr) {
    start_own();
    trace::stop().expect("a sink takes everything");
    let client = std::thread::spawn(move || web::get(server, "/debug/pprof/trace?seconds=600"));
    until("it records", trace::is_enabled);
    let begun = ROUNDS.load(Relaxed);
    until("something happens in it", || ROUNDS.load(Relaxed) > begun + 1);
    let stats = trace::stop().expect("the client reads");
    assert!(stats.events > 0 && stats.dropped_events == 0, "{stats:?}");
    let parsed = check(&client.join().expect("it reads"));
    assert!(parsed.count(EventType::GoSleep) >= 4);
}

#[inline(never)]
fn spins() {
    burn(Duration::from_millis(1));
}

/// With `hz=` the trace has CPU samples, and a CPU profile can be requested meanwhile.
#[test]
fn samples_of_the_processor_if_asked_for() {
    child::isolated("samples_of_the_processor_if_asked_for", || {
        let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
        let background = Background::default();
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            s.spawn(|| background.repeat(spins));
            let samples = |query: &str| {
                let answer = web::get(server, &format!("/debug/pprof/trace?seconds=1{query}"));
                let parsed = check(&answer);
                let in_spins =
                    |sample: &Event<'_>| sample.stack().any(|frame| frame.function.ends_with("::spins"));
                parsed.events_of(EventType::CpuSample).filter(in_spins).count()
            };
            assert_eq!(samples(""), 0);
            assert!(samples("&hz=500") > 0);
            for query in ["hz=0", "hz=10001", "hz=x"] {
                let answer = web::get(server, &format!("/debug/pprof/trace?{query}"));
                let expected = "invalid value for \"hz\" - must be a number from 1 to 10000\n";
                assert_eq!((answer.status, answer.text()), (400, expected), "{query}");
            }

            let mut client = Connection::open(server).expect("the server listens");
            let target = "/debug/pprof/trace?seconds=600&hz=100";
            client.send(web::request(server, "GET", target, &[], "")).expect("it reads");
            until("it samples", is_sampled);
            let answer = web::get(server, "/debug/pprof/profile?seconds=1&hz=1000");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(Profile::read(&answer.body).period, 1_000_000);
            drop(client);
            until("the trace is over, and its samples", || !trace::is_enabled() && !is_sampled());
        });
    });
}

/// A compressed trace reaches the client while it is recorded, as an uncompressed one does.
#[test]
fn a_compressed_trace_is_sent_in_parts() {
    child::isolated("a_compressed_trace_is_sent_in_parts", || {
        let server = serve("127.0.0.1:0").expect("a port is free");
        let mut connection = Connection::open(server.local_addr()).expect("the server listens");
        let target = "/debug/pprof/trace?seconds=600&format=perfetto";
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
        connection.send(request).expect("it reads");
        let head = connection.head().expect("it answers");
        assert_eq!((head.status, head.header("Content-Encoding")), (200, Some("gzip")));
        let mut sent = Vec::new();
        let mut lengths = std::collections::BTreeSet::from([0]);
        while lengths.len() < 4 {
            sent.extend(connection.chunk().expect("more comes before the trace is over"));
            let mut unpacked = Vec::new();
            // The end is missing.
            let _ = flate2::read::GzDecoder::new(&*sent).read_to_end(&mut unpacked);
            lengths.insert(unpacked.len());
        }
        drop(connection);
        server.shutdown();
    });
}
