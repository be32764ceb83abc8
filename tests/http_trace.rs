//! `/debug/pprof/trace`: a trace that streams, one at a time.
#![cfg(feature = "http")]

mod support;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rtprof::http::serve;
use rtprof::sync::mpsc::channel;
use rtprof::thread;
use rtprof::trace::{self, EventType};
use support::Background;
use support::web::{self, Answer, Connection};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

const REFUSED: &str = "Could not enable tracing: execution tracer already enabled\n";

fn check(answer: &Answer) -> trace::Parsed {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Content-Type"), Some("application/octet-stream"));
    assert_eq!(answer.header("Content-Disposition"), Some("attachment; filename=\"trace\""));
    trace::validate(&answer.body).expect("Go's tools read it")
}

#[track_caller]
fn check_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (500, REFUSED));
    assert_eq!(answer.header("X-Go-Pprof"), Some("1"));
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a trace of the program's own, when the one before is over to its last byte.
fn start_own() {
    wait_until("the writer is done", || trace::start(std::io::sink()).is_ok());
}

/// A client that has asked, and has begun to read.
fn asking(server: SocketAddr, seconds: &str) -> Connection {
    let mut connection = Connection::open(server).expect("the server listens");
    let request = format!("GET /debug/pprof/trace?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.send(request).expect("it reads");
    let head = connection.head().expect("it answers");
    assert_eq!(head.status, 200);
    connection
}

/// One trace at a time in a process: one test.
#[test]
fn traces_stream() {
    let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
    let background = Background::default();
    std::thread::scope(|s| {
        let _ends = background.ends_here();
        s.spawn(|| {
            // Threads that begin, talk and end.
            background.repeat(|| {
                let (send, receive) = channel();
                let worker = thread::Builder::new().name("worker".into());
                let worker = worker.spawn(move || receive.iter().sum::<u32>()).expect("a thread");
                (1..=4).for_each(|n| {
                    thread::sleep(Duration::from_millis(1));
                    send.send(n).expect("it listens");
                });
                drop(send);
                assert_eq!(worker.join().ok(), Some(10));
            });
        });

        a_whole_one(server);
        fractions_and_what_makes_no_sense(server);
        one_at_a_time(server);
        a_client_that_goes_away(server);
        a_stop_by_the_program(server);
    });
}

fn a_whole_one(server: SocketAddr) {
    let started = Instant::now();
    let parsed = check(&web::get(server, "/debug/pprof/trace?seconds=2"));
    let took = started.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(30)).contains(&took), "{took:?}");
    for (event, least) in [
        (EventType::GoCreate, 50),
        (EventType::GoEnd, 50),
        (EventType::GoBlockRecv, 50),
        (EventType::GoSleep, 100),
        (EventType::GoUnblock, 50),
    ] {
        assert!(parsed.count(event) >= least, "{event:?}: {}", parsed.count(event));
    }
}

fn fractions_and_what_makes_no_sense(server: SocketAddr) {
    for (query, least, most) in [
        ("?seconds=0.2", 0.2, 0.9),
        ("?seconds=1e-9", 0.0, 0.9),
        ("", 1.0, 10.0),
        ("?seconds=x", 1.0, 10.0),
        ("?seconds=-3", 1.0, 10.0),
    ] {
        let started = Instant::now();
        check(&web::get(server, &format!("/debug/pprof/trace{query}")));
        let took = started.elapsed().as_secs_f64();
        // The rest is for a machine that is busy.
        assert!((least..most + 9.0).contains(&took), "{query} took {took} s");
    }
}

fn one_at_a_time(server: SocketAddr) {
    let mut first = asking(server, "3");
    wait_until("it records", trace::is_enabled);
    check_refused(&web::get(server, "/debug/pprof/trace?seconds=1"));
    assert!(matches!(trace::start(std::io::sink()), Err(trace::TraceError::AlreadyStarted)));
    // Profiles do not wait for it.
    let started = Instant::now();
    assert_eq!(web::get(server, "/debug/pprof/heap").status, 200);
    assert!(started.elapsed() < Duration::from_secs(2) || !trace::is_enabled());
    first.end_sending().expect("it is open");
    wait_until("it ends", || !trace::is_enabled());
    drop(first);

    start_own();
    check_refused(&web::get(server, "/debug/pprof/trace"));
    trace::stop().expect("a sink takes everything");
    check(&web::get(server, "/debug/pprof/trace?seconds=0.1"));
}

/// The trace ends soon after its client is gone, and the next one can begin.
fn a_client_that_goes_away(server: SocketAddr) {
    let connection = asking(server, "600");
    wait_until("it records", trace::is_enabled);
    drop(connection);
    wait_until("nobody wants it", || !trace::is_enabled());
    let started = Instant::now();
    loop {
        let answer = web::get(server, "/debug/pprof/trace?seconds=0.1");
        if answer.status == 200 {
            check(&answer);
            break;
        }
        check_refused(&answer);
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    // One that asks and never reads.
    let mut silent = TcpStream::connect(server).expect("the server listens");
    silent
        .write_all(b"GET /debug/pprof/trace?seconds=0.2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    wait_until("it records", trace::is_enabled);
    wait_until("it ends", || !trace::is_enabled());
}

/// Go's `trace.Stop` ends the endpoint's trace too; what was recorded is sent.
fn a_stop_by_the_program(server: SocketAddr) {
    start_own();
    trace::stop().expect("a sink takes everything");
    let started = Instant::now();
    let client = std::thread::spawn(move || web::get(server, "/debug/pprof/trace?seconds=600"));
    wait_until("it records", trace::is_enabled);
    thread::sleep(Duration::from_millis(50));
    let stats = trace::stop().expect("the client reads");
    assert!(stats.events > 0 && stats.dropped_events == 0, "{stats:?}");
    let parsed = check(&client.join().expect("it reads"));
    assert!(parsed.count(EventType::GoSleep) > 0);
    assert!(started.elapsed() < Duration::from_secs(60));
}
