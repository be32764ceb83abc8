//! How many captures there are at one time.
#![cfg(feature = "http")]

mod support;

use std::time::{Duration, Instant};

use rtprof::http::Config;
use support::web::{self, Connection};

/// More captures than are allowed wait, for ten seconds, and are then told to come again; the place of a client that
/// has gone away is free.
#[test]
fn captures_are_limited() {
    let config = Config { max_captures: 1, ..Config::default() };
    let server = rtprof::http::serve_with("127.0.0.1:0", config).expect("a port is free");
    let address = server.local_addr();
    let mut long = Connection::open(address).expect("it listens");
    long.send(web::request(address, "GET", "/debug/pprof/heap?seconds=100", &[], "")).expect("it reads");
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    let waiting: Vec<_> = ["heap", "mutex?debug=1", "allocs?seconds=1", "goroutine", "delta_block"]
        .map(|path| std::thread::spawn(move || web::get(address, &format!("/debug/pprof/{path}"))))
        .into();
    for answer in waiting {
        let answer = answer.join().expect("it is answered");
        let seen = (answer.status, answer.header("Retry-After"), answer.header("X-Go-Pprof"), answer.text());
        assert_eq!(
            seen,
            (
                503,
                Some("1"),
                Some("1"),
                "as many captures as allowed are under way (Config::max_captures, 1); try again\n"
            )
        );
    }
    assert!(
        (Duration::from_secs(9)..Duration::from_secs(30)).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
    // What captures nothing needs no place.
    let looks = [("heap?seconds=0", 400), ("unknown", 404), ("profile", 500), ("", 200), ("symbol?0x1", 200)];
    for (path, status) in looks {
        assert_eq!(web::get(address, &format!("/debug/pprof/{path}")).status, status);
    }
    assert_eq!(web::ask(address, "HEAD", "/debug/pprof/heap", &[]).status, 200);
    drop(long);
    let free = || {
        let started = Instant::now();
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        assert!(started.elapsed() < Duration::from_secs(8), "its client is gone: {:?}", started.elapsed());
    };
    free();
    // Nor does a client keep it that leaves something unread behind: a body, a next request.
    let heap = web::request(address, "GET", "/debug/pprof/heap?seconds=100", &[], "");
    for request in [heap.replacen("\r\n", "\r\nContent-Length: 9\r\n", 1), heap.clone() + &heap] {
        let mut long = Connection::open(address).expect("it listens");
        long.send(request).expect("it reads");
        std::thread::sleep(Duration::from_millis(300));
        drop(long);
        free();
    }
    server.shutdown();
}
