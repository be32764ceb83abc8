//! Malformed requests: a server answers any input or closes the connection, as HTTP demands, and goes on.
//!
//! Valid requests are changed at random places, so that many get far. The seed is fixed; `RTPROF_STRESS_SECS` sets how
//! long each test runs.

use std::net::SocketAddr;
use std::time::Instant;

use http::Request;
use http_body_util::Full;
use rtprof::http::{Config, Handler};
use test_support::random::Random;
use test_support::{child, stress, web};

/// Statuses for which the request may be to blame, or which say that a part is not built yet.
const EXPECTED: [u16; 14] = [200, 301, 302, 400, 401, 403, 404, 405, 408, 413, 414, 431, 500, 503];

const LINES: [&str; 12] = [
    "GET /debug/pprof/heap?debug=1&gc=1 HTTP/1.1",
    "GET /debug/pprof/allocs?format=collapsed&sample_index=alloc_space HTTP/1.1",
    "GET /debug/pprof/mutex?seconds=1 HTTP/1.1",
    "GET /debug/pprof/symbol?0x55d0c0de+0x55d0c0df HTTP/1.1",
    "POST /debug/pprof/symbol HTTP/1.1",
    "HEAD /debug/pprof/block?symbolize=none HTTP/1.0",
    "GET http://localhost/debug/pprof/threadcreate?debug=2 HTTP/1.1",
    "GET /debug/pprof/../pprof//goroutine HTTP/1.1",
    "GET /debug/pprof/%68eap?%64ebug=%31 HTTP/1.1",
    "GET / HTTP/1.1",
    "GET /debug/pprof/profile?seconds=-1&format=x HTTP/1.1",
    "GET /debug/pprof/trace?seconds=1e-9 HTTP/1.1",
];

const HEADERS: [&str; 9] = [
    "Host: localhost",
    "Host: 127.0.0.1:6060",
    "Connection: close",
    "Content-Length: 9",
    "Transfer-Encoding: chunked",
    "Authorization: Bearer x",
    "Authorization: Basic eDp4",
    "Expect: 100-continue",
    "Accept-Encoding: gzip",
];

const BODIES: [&str; 5] =
    ["", "0x1+0x2+0", "9\r\n0x1+0x2+0\r\n0\r\n\r\n", "ffffffffffffffff\r\nx", "+++++++++"];

/// Bytes that have a meaning in some syntax.
const TELLING: &[u8] = b"\r\n\0 %&;=+/?#:.\"\\<>-_09afxX\x7f\x80\xff";

fn request(random: &mut Random) -> Vec<u8> {
    let mut text = format!("{}\r\n", LINES[random.below(LINES.len())]);
    for _ in 0..random.below(5) {
        text.push_str(HEADERS[random.below(HEADERS.len())]);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(BODIES[random.below(BODIES.len())]);
    let mut bytes = text.into_bytes();
    for _ in 0..random.below(6) {
        mend(&mut bytes, random);
    }
    bytes
}

fn mend(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let telling = TELLING[random.below(TELLING.len())];
    match random.below(6) {
        0 => bytes.insert(at, telling),
        1 if at < bytes.len() => bytes[at] = telling,
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 => bytes.truncate(at.max(1)),
        4 => {
            let many = vec![telling; 1 << random.below(15)];
            bytes.splice(at..at, many);
        }
        _ => {
            let from = random.below(bytes.len());
            let piece = bytes[from..(from + random.below(40)).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
    if bytes.is_empty() {
        bytes.push(telling);
    }
}

#[test]
fn no_request_line_head_or_body_upsets_a_server() {
    child::isolated("no_request_line_head_or_body_upsets_a_server", || {
        let config = Config { max_seconds: 1, ..Config::default() };
        let server = rtprof::http::serve_with("127.0.0.1:0", config).expect("a port is free");
        let address = server.local_addr();
        let mut random = Random::new(4);
        let started = Instant::now();
        let (mut requests, mut answered) = (0, 0);
        while started.elapsed() < stress() || requests < 100 {
            let bytes = request(&mut random);
            requests += 1;
            answered += usize::from(answer_is_proper(address, &bytes));
        }
        println!("{answered} of {requests} requests were answered");
        assert!(answered * 4 > requests, "{answered} of {requests} requests were answered");
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
    });
}

/// Returns whether there is an answer. Fails if the answer is not valid HTTP, or blames the server.
fn answer_is_proper(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut connection = web::Connection::open(address).expect("the server is there");
    if connection.send(bytes).is_err() || connection.end_sending().is_err() {
        return false;
    }
    let Ok(answer) = connection.receive(bytes.starts_with(b"HEAD ")) else { return false };
    let shown = String::from_utf8_lossy(bytes);
    assert!(EXPECTED.contains(&answer.status), "{shown:?}: {answer:?}");
    if answer.status == 500 {
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.is_empty() || text.starts_with("Could not enable "), "{shown:?}: {text}");
    }
    true
}

#[test]
fn no_query_or_symbol_upsets_a_handler() {
    child::isolated("no_query_or_symbol_upsets_a_handler", || {
        let handler = Handler::new(Config { max_seconds: 1, cmdline: true, ..Config::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut random = Random::new(5);
        let started = Instant::now();
        let mut handled = 0;
        while started.elapsed() < stress() || handled <= 20 {
            // Without `seconds`, which would take a second each.
            let path = ["symbol", "heap", "block", "cmdline", "nothing", "", "delta_block"][random.below(7)];
            let mut query = b"debug=1&format=&sample_index=3&symbolize=none&gc=1&0x55d0c0de+0x1+017".to_vec();
            for _ in 0..random.below(12) {
                mend(&mut query, &mut random);
            }
            let method = if path == "symbol" && random.below(2) == 0 { "POST" } else { "GET" };
            let target = match method {
                "POST" => format!("/debug/pprof/{path}"),
                _ => format!("/debug/pprof/{path}?{}", String::from_utf8_lossy(&query)),
            };
            // A server refuses an invalid target before the handler sees it.
            let Ok(target) = target.parse::<http::Uri>() else { continue };
            let request =
                Request::builder().method(method).uri(target).body(Full::<bytes::Bytes>::from(query.clone()));
            let request = request.expect("its parts are well-formed");
            let shown = format!("{request:?}");
            let response = runtime.block_on(handler.handle(request));
            assert!([200, 301, 400, 404].contains(&response.status().as_u16()), "{shown}: {response:?}");
            assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{shown}");
            let is_error = response.status().as_u16() >= 400;
            assert_eq!(response.headers().contains_key("x-go-pprof"), is_error, "{shown}: {response:?}");
            let body = runtime.block_on(http_body_util::BodyExt::collect(response.into_body()));
            let body = body.expect("a body comes to its end").to_bytes();
            assert!(!body.is_empty() || path == "cmdline", "{shown}");
            if path == "symbol" && !is_error {
                assert!(body.starts_with(b"num_symbols: 1\n"), "{shown}");
            }
            handled += 1;
        }
        println!("{handled} requests were handled");
    });
}
