//! The endpoints as routes of a service that is built with axum, on its own port and runtime.

use std::net::SocketAddr;

use rtprof::http::{Config, Handler};
use test_support::child;
use test_support::profile::Profile;
use test_support::web;

/// Serves for as long as the test runs, on the service's own runtime.
fn serve(router: axum::Router) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || runtime.block_on(async { axum::serve(listener, router).await }));
    address
}

#[test]
fn routes_are_the_endpoints() {
    child::isolated("routes_are_the_endpoints", || {
        let own = axum::routing::get(async |state: axum::extract::State<u32>| state.0.to_string());
        let app = axum::Router::new().route("/", own).merge(rtprof::http::router().with_state(()));
        let address = serve(app.with_state(7));
        assert_eq!(web::get(address, "/").text(), "7", "the service's own is as before");
        let files = rtprof::pprof::Profile::new("axum/open_files").expect("the name is free");
        files.add(1, 0).expect("the key is new");
        for name in
            ["heap", "allocs?gc=1", "block", "goroutine", "delta_mutex", "axum/open_files", "heap?seconds=1"]
        {
            let answer = web::get(address, &format!("/debug/pprof/{name}"));
            let kind = answer.header("Content-Type").map(str::to_owned);
            assert_eq!((answer.status, kind.as_deref()), (200, Some("application/octet-stream")), "{name}");
            assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
            Profile::read(&answer.body);
        }
        for (path, status, text) in [
            ("/debug/pprof", 301, "see pprof/\n"),
            ("/debug/pprof/symbol", 200, "num_symbols: 1\n"),
            ("/debug/pprof/unknown", 404, "Unknown profile\n"),
            ("/debug/pprof/cmdline", 404, "cmdline is off; Config::cmdline allows it\n"),
            (
                "/debug/pprof/heap?seconds=0",
                400,
                "invalid value for \"seconds\" - must be a positive integer\n",
            ),
        ] {
            let answer = web::get(address, path);
            assert_eq!((answer.status, answer.text()), (status, text), "{path}");
        }
        assert!(web::get(address, "/debug/pprof/").text().contains("axum/open_files"));
        let head = web::ask(address, "HEAD", "/debug/pprof/heap", &[]);
        assert_eq!((head.status, head.end), (200, web::End::None));
        let refused = web::ask(address, "PUT", "/debug/pprof/heap", &[]);
        assert_eq!((refused.status, refused.header("Allow")), (405, Some("GET, HEAD")));
        let here = routes_are_the_endpoints as fn() as usize;
        let request = web::request(address, "POST", "/debug/pprof/symbol", &[], &format!("{here:#x}"));
        let named = web::exchange(address, request).expect("an answer");
        assert_eq!(
            named.text(),
            format!("num_symbols: 1\n{here:#x} readers::http_axum::routes_are_the_endpoints\n")
        );
    });
}

#[test]
fn routes_of_a_configuration() {
    child::isolated("routes_of_a_configuration", || {
        let handler = Handler::new(Config { token: Some("s3cret".into()), ..Config::default() });
        let address = serve(handler.router());
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 401);
        let answer = web::ask(address, "GET", "/debug/pprof/heap", &["Authorization: Bearer s3cret"]);
        assert_eq!(answer.status, 200);
        Profile::read(&answer.body);
    });
}
