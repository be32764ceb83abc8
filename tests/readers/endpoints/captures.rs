//! The limit of captures at one time.

use std::time::{Duration, Instant};

use rtprof::http::Config;
use test_support::web::{self, Connection};
use test_support::{child, until};

/// Captures beyond the limit wait, for ten seconds, and are then refused with a request to retry. A client that has
/// gone away frees its permit.
#[test]
fn captures_are_limited() {
    child::isolated("captures_are_limited", || {
        let config = Config { max_captures: 1, ..Config::default() };
        let server = rtprof::http::serve_with("127.0.0.1:0", config).expect("a port is free");
        let address = server.local_addr();
        let mut long = Connection::open(address).expect("it listens");
        // A capture whose progress can be observed.
        long.send(web::request(address, "GET", "/debug/pprof/trace?seconds=600", &[], "")).expect("it reads");
        until("it has its place", rtprof::trace::is_enabled);
        let started = Instant::now();
        let waiting: Vec<_> = ["heap", "mutex?debug=1", "allocs?seconds=1", "goroutine", "delta_block"]
            .map(|path| std::thread::spawn(move || web::get(address, &format!("/debug/pprof/{path}"))))
            .into();
        for answer in waiting {
            let answer = answer.join().expect("it is answered");
            let seen =
                (answer.status, answer.header("Retry-After"), answer.header("X-Go-Pprof"), answer.text());
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
        assert!(started.elapsed() >= Duration::from_secs(9), "{:?}", started.elapsed());
        assert!(rtprof::trace::is_enabled(), "the long one is still there");
        // Requests that capture nothing need no permit.
        let looks = [
            ("heap?seconds=0", 400),
            ("unknown", 404),
            ("profile?format=x", 400),
            ("", 200),
            ("symbol?0x1", 200),
        ];
        for (path, status) in looks {
            assert_eq!(web::get(address, &format!("/debug/pprof/{path}")).status, status);
        }
        assert_eq!(web::ask(address, "HEAD", "/debug/pprof/heap", &[]).status, 200);
        drop(long);
        // Each attempt waits ten seconds for a permit.
        let free = || until("its client is gone", || web::get(address, "/debug/pprof/heap").status == 200);
        free();
        // A client that leaves something unread behind (a body, a next request) frees its permit too.
        let heap = web::request(address, "GET", "/debug/pprof/heap?seconds=600", &[], "");
        for request in [heap.replacen("\r\n", "\r\nContent-Length: 9\r\n", 1), heap.clone() + &heap] {
            let mut long = Connection::open(address).expect("it listens");
            long.send(request).expect("it reads");
            // The capture has begun once the server has answered a later request.
            assert_eq!(web::get(address, "/debug/pprof/symbol").status, 200);
            drop(long);
            free();
        }
        server.shutdown();
    });
}
