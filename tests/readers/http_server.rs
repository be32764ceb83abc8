//! A standalone server: malformed requests, access control, start and end.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use rtprof::http::{Config, Server, serve, serve_with};
use test_support::descriptors::Untouched;
use test_support::web::{self, Answer, Connection, End};
use test_support::{PATIENCE, child, descriptors, profile, threads, until};

fn start(config: Config) -> (Server, SocketAddr) {
    let server = serve_with("127.0.0.1:0", config).expect("a port is free");
    let address = server.local_addr();
    (server, address)
}

fn exchange(address: SocketAddr, request: &str) -> Answer {
    web::exchange(address, request).unwrap_or_else(|error| panic!("{request:.100}: {error}"))
}

/// Malformed input is answered once, with no text of ours, and the connection ends.
#[test]
fn malformed_requests() {
    child::isolated("malformed_requests", || {
        let (server, address) = start(Config::default());
        let host = "Host: localhost\r\n";
        let long = "x".repeat(17 << 10);
        let many = "X: y\r\n".repeat(64);
        let cases = [
            ("GET\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            (" / HTTP/1.1\r\n\r\n", 400),
            ("G(T / HTTP/1.1\r\n\r\n", 400),
            ("GET / / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.2\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\n\r\n", 400),
            ("GET /a b HTTP/1.1\r\n\r\n", 400),
            ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
            ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
            (&format!("GET / HTTP/1.1\r\n{host} folded\r\n\r\n"), 400),
            (&format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"), 400),
            (&format!("GET / HTTP/1.1\r\n{host}X: \0\r\n\r\n"), 400),
            (&format!("POST /debug/pprof/symbol HTTP/1.1\r\n{host}Content-Length: x\r\n\r\n"), 400),
            (&format!("POST /debug/pprof/symbol HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n"), 400),
            (
                &format!(
                    "POST /debug/pprof/symbol HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"
                ),
                400,
            ),
            (&format!("POST /debug/pprof/symbol HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\n\r\n"), 400),
            (&format!("GET /{long} HTTP/1.1\r\n{host}\r\n"), 431),
            (&format!("GET / HTTP/1.1\r\n{host}X: {long}\r\n\r\n"), 431),
            (&format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), 431),
        ];
        for (request, status) in cases {
            let mut connection = Connection::open(address).expect("it listens");
            connection.send(request).expect("it reads");
            let answer = connection.receive(false).unwrap_or_else(|error| panic!("{request:.100?}: {error}"));
            assert_eq!((answer.status, &*answer.body), (status, &b""[..]), "{request:.100?}");
            assert_eq!(answer.own_headers(), [""; 0], "{request:.100?}");
            assert!(connection.is_closed(), "{request:.100?}");
        }
        // Large input within the limits is accepted.
        let target = format!("/debug/pprof/{}", &long[..15 << 10]);
        assert_eq!(exchange(address, &format!("GET {target} HTTP/1.1\r\n{host}\r\n")).status, 404);
        let headers = "X: y\r\n".repeat(63);
        assert_eq!(exchange(address, &format!("GET / HTTP/1.1\r\n{host}{headers}\r\n")).status, 302);
        // A client that goes away in the middle of a request does no harm.
        drop(Connection::open(address).expect("it listens"));
        let mut connection = Connection::open(address).expect("it listens");
        connection.send("GET /debug/pprof/heap HTTP/1.1\r\nHo").expect("it reads");
        drop(connection);
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        server.shutdown();
    });
}

#[test]
fn connections_are_kept() {
    child::isolated("connections_are_kept", || {
        let (server, address) = start(Config::default());
        let get = |target: &str| web::request(address, "GET", target, &[], "");
        let mut connection = Connection::open(address).expect("it listens");
        for (target, status) in
            [("heap", 200), ("unknown", 404), ("heap?debug=1", 200), ("", 200), ("heap?seconds=0", 400)]
        {
            connection.send(get(&format!("/debug/pprof/{target}"))).expect("it is kept");
            let answer = connection.receive(false).expect("an answer");
            assert_eq!(answer.status, status, "{target}");
            assert_ne!(answer.header("Connection"), Some("close"), "{target}");
        }
        // Two requests at once.
        connection.send(get("/debug/pprof/symbol") + &get("/")).expect("it is kept");
        assert_eq!(connection.receive(false).expect("an answer").text(), "num_symbols: 1\n");
        assert_eq!(connection.receive(false).expect("an answer").status, 302);
        // After a HEAD, whose answer has no body, the next answer begins where it should.
        connection.send(web::request(address, "HEAD", "/debug/pprof/heap", &[], "")).expect("it is kept");
        assert_eq!(connection.receive(true).expect("an answer").status, 200);
        connection.send(get("/debug/pprof/unknown")).expect("it is kept");
        assert_eq!(connection.receive(false).expect("an answer").text(), "Unknown profile\n");
        // A body that no handler reads is not taken for a request.
        let hidden = get("/debug/pprof/symbol");
        connection
            .send(web::request(address, "POST", "/debug/pprof/heap", &[], &hidden))
            .expect("it is kept");
        assert_eq!(connection.receive(false).expect("an answer").status, 405);
        if connection.send(get("/debug/pprof/unknown")).is_ok()
            && let Ok(answer) = connection.receive(false)
        {
            assert_eq!(answer.status, 404, "not the answer to what was in the body");
        }
        let mut connection = Connection::open(address).expect("it listens");
        connection.send(web::request(address, "GET", "/", &["Connection: close"], "")).expect("it reads");
        assert_eq!(connection.receive(false).expect("an answer").status, 302);
        assert!(connection.is_closed());
        server.shutdown();
    });
}

/// A client may end its side of the connection after its request, as `nc -N` does.
#[test]
fn half_closed_connections() {
    child::isolated("half_closed_connections", || {
        let (server, address) = start(Config::default());
        for target in ["heap?debug=1", "heap", "goroutine?debug=2", "", "allocs?format=flamegraph", "symbol"]
        {
            let mut connection = Connection::open(address).expect("it listens");
            let request = web::request(address, "GET", &format!("/debug/pprof/{target}"), &[], "");
            connection.send(request.clone() + &request).expect("it reads");
            connection.end_sending().expect("it is open");
            for _ in 0..2 {
                let answer = connection.receive(false).unwrap_or_else(|error| panic!("{target}: {error}"));
                assert!(answer.status == 200 && !answer.body.is_empty(), "{target}: {}", answer.status);
            }
            assert!(connection.is_closed(), "{target}");
        }
        server.shutdown();
    });
}

/// Old clients are answered in their version: without chunks, and the end of the connection ends the body.
#[test]
fn http_1_0() {
    child::isolated("http_1_0", || {
        let (server, address) = start(Config::default());
        let answer = exchange(address, "GET /debug/pprof/heap HTTP/1.0\r\n\r\n");
        assert_eq!((answer.line.as_str(), answer.end), ("HTTP/1.0 200 OK", End::Close));
        assert_eq!(profile::Profile::read(&answer.body).sample_type.len(), 4);
        let answer = exchange(address, "GET /debug/pprof/x HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert_eq!((answer.line.as_str(), answer.end), ("HTTP/1.0 404 Not Found", End::Length));
        assert_eq!(exchange(address, "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n").status, 403);
        let mut connection = Connection::open(address).expect("it listens");
        for _ in 0..2 {
            connection.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("it is kept");
            assert_eq!(connection.receive(false).expect("an answer").status, 302);
        }
        server.shutdown();
    });
}

/// A page of another site that had its name resolve to this machine gets no data.
#[test]
fn hosts() {
    child::isolated("hosts", || {
        let (server, address) = start(Config { hosts: vec!["profiles.example".into()], ..Config::default() });
        let port = address.port();
        let with =
            |hosts: &str| exchange(address, &format!("GET /debug/pprof/symbol HTTP/1.1\r\n{hosts}\r\n"));
        let loopback = format!("127.0.0.1:{port}");
        for host in [
            "localhost",
            "LocalHost.",
            "localhost:1",
            &loopback,
            "127.1.2.3",
            "[::1]:6060",
            "profiles.example:80",
        ] {
            assert_eq!(with(&format!("Host: {host}\r\n")).text(), "num_symbols: 1\n", "{host}");
        }
        let refusal = |answer: Answer| {
            assert_eq!(answer.header("X-Go-Pprof"), Some("1"));
            (answer.status, answer.text().to_owned())
        };
        for host in
            ["evil.example", "evil.example:6060", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "127.1"]
        {
            let message = format!(
                "Host {host:?} is not this machine's own name; use localhost, or allow the name in Config::hosts\n"
            );
            assert_eq!(refusal(with(&format!("Host: {host}\r\n"))), (403, message));
        }
        let broken = [
            ("", "missing required Host header\n"),
            ("Host: localhost\r\nHost: localhost\r\n", "too many Host headers\n"),
            ("Host:\r\n", "malformed Host header\n"),
            ("Host: a b\r\n", "malformed Host header\n"),
            ("Host: http://localhost\r\n", "malformed Host header\n"),
            ("Host: \u{e9}\r\n", "malformed Host header\n"),
        ];
        for (hosts, message) in broken {
            assert_eq!(refusal(with(hosts)), (400, message.to_owned()), "{hosts:?}");
        }
        // The address in the first line takes precedence over the header.
        let whole =
            |host: &str| format!("GET http://{host}/debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(exchange(address, &whole("localhost")).text(), "num_symbols: 1\n");
        assert_eq!(exchange(address, &whole("evil.example")).status, 403);
        // The check comes before everything else, including the redirect to the index.
        assert_eq!(exchange(address, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
        server.shutdown();
    });
}

const NO_TOKEN: &str = "a token is required: Authorization: Bearer TOKEN, or the token as a password\n";
const WRONG_TOKEN: &str = "the token is not the right one\n";

#[test]
fn tokens() {
    child::isolated("tokens", || {
        let (server, address) = start(Config { token: Some("s3cret".into()), ..Config::default() });
        let symbol = "/debug/pprof/symbol";
        // "any:s3cret" and ":s3cret".
        for right in ["Bearer s3cret", "bearer s3cret", "Basic YW55OnMzY3JldA==", "basic OnMzY3JldA=="] {
            let answer = web::ask(address, "GET", symbol, &[&format!("Authorization: {right}")]);
            assert_eq!(answer.text(), "num_symbols: 1\n", "{right}");
            assert_eq!(answer.header("WWW-Authenticate"), None);
        }
        let challenge = "Basic realm=\"rtprof\", Bearer";
        let refused = |answer: &Answer, message: &str| {
            let seen = (
                answer.status,
                answer.header("WWW-Authenticate"),
                answer.header("X-Go-Pprof"),
                answer.text(),
            );
            assert_eq!(seen, (401, Some(challenge), Some("1"), message));
        };
        // "any:s3cre" and "s3cret".
        let wrong = [
            "",
            "Bearer",
            "Bearer s3cre",
            "Bearer s3crets",
            "Bearer S3CRET",
            "s3cret",
            "Basic YW55OnMzY3Jl",
            "Basic czNjcmV0",
        ];
        for wrong in wrong {
            let answer = web::ask(address, "GET", symbol, &[&format!("Authorization: {wrong}")]);
            refused(&answer, WRONG_TOKEN);
        }
        let twice = ["Authorization: Bearer s3cret", "Authorization: Bearer s3cret"];
        refused(&web::ask(address, "GET", symbol, &twice), WRONG_TOKEN);
        // Without the token no client learns which endpoints exist.
        for (method, target) in [
            ("GET", "/"),
            ("GET", "/x"),
            ("GET", "/debug/pprof"),
            ("PUT", "/debug/pprof/heap"),
            ("POST", symbol),
        ] {
            refused(&web::ask(address, method, target, &[]), NO_TOKEN);
        }
        assert_eq!(web::ask(address, "HEAD", "/debug/pprof/heap", &[]).status, 401);
        // A page of another site may have the password, through a browser that logged in once.
        let evil = "GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer s3cret\r\n\r\n";
        assert_eq!(exchange(address, evil).status, 403);
        server.shutdown();

        for empty in ["", " ", "\n"] {
            let error = serve_with("127.0.0.1:0", Config { token: Some(empty.into()), ..Config::default() });
            let error = error.expect_err("everybody would be let in");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("Config::token is empty"), "{error}");
        }
    });
}

#[test]
fn addresses_that_cannot_be() {
    child::isolated("addresses_that_cannot_be", || {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let taken = held.local_addr().expect("it is bound");
        let error = serve(taken).expect_err("it is taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with(&format!("cannot serve profiles on {taken}: ")), "{error}");
        let error = serve("0.0.0.0:0").expect_err("others reach it");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let expected = "0.0.0.0:0 can be reached from other machines, and profiles tell names, paths and labels; serve on \
                    127.0.0.1, or allow it with Config::allow_remote and set Config::token";
        assert_eq!(error.to_string(), expected);
        // An address reserved for documentation, which no machine has.
        let remote = Config { allow_remote: true, ..Config::default() };
        let error = serve_with("192.0.2.1:6060", remote.clone()).expect_err("it is nobody's");
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        assert!(error.to_string().starts_with("cannot serve profiles on 192.0.2.1:6060: "), "{error}");
        let error = serve("nonsense").expect_err("it is no address");
        assert!(
            error.to_string().starts_with("no address to serve profiles on, such as \"127.0.0.1:6060\": "),
            "{error}"
        );

        // Binds all addresses of this machine. On an address that is not loopback any Host is accepted.
        let server = serve_with("0.0.0.0:0", remote).expect("a port is free");
        let loopback = SocketAddr::from(([127, 0, 0, 1], server.local_addr().port()));
        let foreign = "GET /debug/pprof/symbol HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        assert_eq!(exchange(loopback, foreign).status, 403);
        assert_eq!(web::get(loopback, "/debug/pprof/symbol").status, 200);
        server.shutdown();
    });
}

const NONE: [i64; 0] = [];

fn server_threads() -> Vec<i64> {
    threads::nice_values("rtprof-http")
}

/// Waits until the server's threads are gone: the kernel lists a thread for a moment after its join.
fn until_gone() {
    until("the server's threads are gone", || server_threads() == NONE);
}

#[test]
fn shutdown_leaves_nothing() {
    child::isolated("shutdown_leaves_nothing", || {
        assert_eq!(server_threads(), NONE);
        let (server, address) = start(Config::default());
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        let threads = server_threads();
        // The threads have the program's priority, so that they answer when the program keeps all cores busy.
        let own = threads::own_nice_value();
        assert!(!threads.is_empty() && threads.iter().all(|&nice| nice == own), "{threads:?}, {own}");
        // A capture and an idle connection are abandoned.
        let mut idle = Connection::open(address).expect("it listens");
        let mut capturing = Connection::open(address).expect("it listens");
        capturing
            .send(web::request(address, "GET", "/debug/pprof/heap?seconds=500", &[], ""))
            .expect("it reads");
        // The capture has begun once the server has answered a later request.
        assert_eq!(web::get(address, "/debug/pprof/symbol").status, 200);
        let started = Instant::now();
        server.shutdown();
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        until_gone();
        assert!(idle.is_closed() && capturing.is_closed());
        let refused = Connection::open(address).err().expect("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // The port is free again, and a new server works.
        let again = serve(address).expect("the port is free");
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        again.shutdown();
        until_gone();
    });
}

/// Makes epolls that get numbers which were closed, each with one event, which the first wait takes.
fn make_epolls() -> Vec<libc::c_int> {
    let make = |_| {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 1 };
        // SAFETY: `event` outlives the call.
        unsafe {
            let (epoll, ready) = (libc::epoll_create1(0), libc::eventfd(1, 0));
            assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, ready, &raw mut event), 0);
            epoll
        }
    };
    (0..20).map(make).collect()
}

/// Checks that no event was taken.
#[track_caller]
fn check_events(epolls: &[libc::c_int]) {
    for &epoll in epolls {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event.
        assert_eq!(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 0) }, 1);
    }
}

/// A program that closes descriptors that it has not opened. What then has their numbers is left alone, no thread panics, and
/// the server ends with one message, or by its shutdown.
#[test]
fn descriptors_may_be_closed() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let test = "descriptors_may_be_closed";
    for scenario in ["shutdown", "left", "left with epolls", "shutdown without files", "connected"] {
        if child::is(test, scenario) {
            std::panic::set_hook(Box::new(|panic| {
                PANICS.fetch_add(1, Relaxed);
                println!("panic: {panic}");
            }));
            let (server, address) = start(Config::default());
            assert_eq!(web::get(address, "/debug/pprof/symbol").status, 200);
            if scenario == "connected" {
                let mut long = Connection::open(address).expect("it listens");
                long.send(web::request(address, "GET", "/debug/pprof/trace?seconds=600", &[], ""))
                    .expect("it reads");
                until("it records", rtprof::trace::is_enabled);
                // Its number is one of those that are closed.
                std::mem::forget(long);
            }
            let (mut epolls, mut files) = (Vec::new(), Vec::new());
            match scenario {
                "left with epolls" => {
                    descriptors::close();
                    epolls = make_epolls();
                }
                "shutdown without files" => descriptors::close(),
                _ => files = descriptors::replace(),
            }
            if scenario.starts_with("left") {
                until("the server has ended", || server_threads().len() == 1);
            } else {
                server.shutdown();
            }
            check_events(&epolls);
            files.iter().for_each(Untouched::check);
            assert_eq!(PANICS.load(Relaxed), 0);
            // The process can serve again.
            let (again, address) = start(Config::default());
            assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
            again.shutdown();
            files.iter().for_each(Untouched::check);
            println!("all is well");
        } else if !child::any() {
            let output = child::output(test, scenario, |_| {});
            let (stdout, stderr) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && stdout.contains("all is well"), "{}", child::report(&output));
            let messages = stderr.matches("rtprof: the server of profiles has ended").count();
            assert!(
                messages == 1 || messages == 0 && !scenario.starts_with("left"),
                "{}",
                child::report(&output)
            );
        }
    }
}

#[test]
fn dropped_it_serves_on() {
    child::isolated("dropped_it_serves_on", || {
        let (server, address) = start(Config::default());
        drop(server);
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        assert!(!server_threads().is_empty());
        assert_eq!(serve(address).expect_err("it is taken").kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn two_servers_are_two() {
    child::isolated("two_servers_are_two", || {
        let (first, one) = start(Config { cmdline: true, ..Config::default() });
        let (second, two) = start(Config { max_seconds: 5, ..Config::default() });
        assert_ne!(one, two);
        assert_eq!(web::get(one, "/debug/pprof/cmdline").status, 200);
        assert_eq!(web::get(two, "/debug/pprof/cmdline").status, 404);
        assert_eq!(web::get(two, "/debug/pprof/heap?seconds=6").status, 400);
        first.shutdown();
        assert!(Connection::open(one).is_err());
        assert_eq!(web::get(two, "/debug/pprof/heap").status, 200);
        second.shutdown();
    });
}
