//! How many captures there are at one time.

use std::time::{Duration, Instant};

use rtprof::http::Config;

use crate::support::web::{self, Connection};
use crate::support::{child, until};

/// More captures than are allowed wait, for ten seconds, and are then told to come again; the place of a client that
/// has gone away is free.
#[test]
fn captures_are_limited() {
    child::isolated("captures_are_limited", || {
        let config = Config { max_captures: 1, ..Config::default() };
        let server = rtprof::http::serve_with("127.0.0.1:0", config).expect("a port is free");
        let address = server.local_addr();
        let mut long = Connection::open(address).expect("it listens");
        // A capture that can be seen to go on.
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
        // What captures nothing needs no place.
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
        // Each asks for ten seconds.
        let free = || until("its client is gone", || web::get(address, "/debug/pprof/heap").status == 200);
        free();
        // Nor does a client keep it that leaves something unread behind: a body, a next request.
        let heap = web::request(address, "GET", "/debug/pprof/heap?seconds=600", &[], "");
        for request in [heap.replacen("\r\n", "\r\nContent-Length: 9\r\n", 1), heap.clone() + &heap] {
            let mut long = Connection::open(address).expect("it listens");
            long.send(request).expect("it reads");
            // It is being worked on once the server has answered another one after it.
            assert_eq!(web::get(address, "/debug/pprof/symbol").status, 200);
            drop(long);
            free();
        }
        server.shutdown();
    });
}
