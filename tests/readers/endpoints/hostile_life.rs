//! Serving profiles in a process that forks, and in a process that gets no thread.

use rtprof::http::{Config, Handler};
use test_support::{address_space, child, fork, web};

use super::handle::{ask, get, poll, run, whole};

/// Returns the status and the text of a heap profile, or of an error.
fn heap(handler: &Handler) -> (u16, String) {
    let (status, body) = ask(handler, get("heap"));
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn a_forked_child_answers_whatever_its_parent_was_doing() {
    fork::isolated("a_forked_child_answers_whatever_its_parent_was_doing", "", || {
        let handler = Handler::new(Config { max_captures: 1, ..Config::default() });
        assert_eq!(ask(&handler, get("heap")).0, 200);
        let mut capture = Box::pin(handler.handle(get("heap?seconds=3")));
        assert!(poll(capture.as_mut()).is_pending());
        // The capture has the only permit once a later request is answered.
        assert_eq!(ask(&handler, get("symbol")).0, 200);
        fork::in_a_child("heap and index in a child", || {
            assert_eq!(ask(&handler, get("heap")).0, 200);
            assert_eq!(ask(&handler, get("")).0, 200);
            assert_eq!(ask(&handler, get("delta_mutex")).0, 200);
        });
        let answer = run(capture);
        assert_eq!(answer.status(), 200);
        run(whole(answer.into_body())).expect("the parent goes on");
    });
}

#[test]
fn a_server_of_the_parents_is_not_the_childs_to_end() {
    fork::isolated("a_server_of_the_parents_is_not_the_childs_to_end", "", || {
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        let address = server.local_addr();
        let mut server = Some(server);
        fork::in_a_child("shutdown in a child", || server.take().expect("it is there").shutdown());
        fork::in_a_child("a server of its own", || {
            let own = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
            assert_eq!(web::get(own.local_addr(), "/debug/pprof/heap").status, 200);
            own.shutdown();
        });
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        server.expect("the parent has it").shutdown();
    });
}

#[test]
fn without_a_thread_there_is_an_answer() {
    child::isolated("without_a_thread_there_is_an_answer", || {
        let handler = Handler::default();
        // Leaves room for an answer, but for no stack of two MiB.
        let before = address_space::limit_address_space(address_space::mapped() + (1 << 20));
        let (status, text) = heap(&handler);
        let server = rtprof::http::serve("127.0.0.1:0").map(drop);
        address_space::limit_address_space(before);
        assert_eq!(status, 503, "{text}");
        assert!(text.starts_with("no thread for the capture: "), "{text}");
        assert!(server.is_err());
        // The server works again when threads are available.
        assert_eq!(ask(&handler, get("heap")).0, 200);

        // The engine runs, but a worker's thread cannot be started.
        let before = address_space::limit_address_space(address_space::mapped() + (1 << 20));
        let (status, text) = heap(&handler);
        address_space::limit_address_space(before);
        // A stack left by a former worker may be reused.
        assert!(status == 200 || status == 503 && text.starts_with("no thread for the capture: "), "{text}");
        assert_eq!(ask(&handler, get("heap")).0, 200);
    });
}
