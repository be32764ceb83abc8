//! `/debug/pprof/flight`: the window of the flight recorder, if one is enabled.

use rtprof::http::serve;
use rtprof::trace::{self, FlightRecorder, Format, Options};
use rtprof_trace_check::{EventType, perfetto};
use test_support::child;
use test_support::profile::gunzip;
use test_support::web;

#[test]
fn the_window_is_served_while_a_recorder_is_enabled() {
    child::isolated("the_window_is_served_while_a_recorder_is_enabled", || {
        let server = serve("127.0.0.1:0").expect("a port is free").local_addr();
        for method in ["GET", "HEAD"] {
            assert_eq!(web::ask(server, method, "/debug/pprof/flight", &[]).status, 404);
        }
        let refused = web::get(server, "/debug/pprof/flight");
        assert!(refused.text().starts_with("no flight recorder is enabled; "), "{}", refused.text());
        assert_eq!(refused.header("X-Go-Pprof"), Some("1"));
        assert!(web::get(server, "/debug/pprof/").text().contains("Off; FlightRecorder::start enables it."));

        let flight = FlightRecorder::new(Options::default());
        flight.start().expect("no other one is enabled");
        for wanted in 1..=2 {
            trace::log("test", "a message");
            let answer = web::get(server, "/debug/pprof/flight");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("Content-Type"), Some("application/octet-stream"));
            let disposition = answer.header("Content-Disposition");
            assert_eq!(disposition, Some("attachment; filename=\"flight.trace\""));
            let parsed = rtprof_trace_check::validate(&answer.body).expect("Go's tools read it");
            assert_eq!(parsed.count(EventType::UserLog), wanted);
        }
        let head = web::ask(server, "HEAD", "/debug/pprof/flight", &[]);
        assert_eq!((head.status, head.body.len()), (200, 0));
        let index = web::get(server, "/debug/pprof/");
        assert!(index.text().contains("<a href=\"flight\">flight</a>"), "{}", index.text());
        // A trace is served beside it.
        let answer = web::get(server, "/debug/pprof/trace?seconds=0.1");
        assert_eq!(answer.status, 200, "{}", answer.text());
        rtprof_trace_check::validate(&answer.body).expect("Go's tools read it");
        flight.stop();
        assert_eq!(web::get(server, "/debug/pprof/flight").status, 404);

        let flight = FlightRecorder::new(Options { format: Format::Perfetto, ..Options::default() });
        flight.start().expect("the other one was stopped");
        trace::log("test", "a message");
        for target in ["/debug/pprof/flight", "/debug/pprof/flight?format=perfetto"] {
            let answer = web::ask(server, "GET", target, &["Accept-Encoding: gzip"]);
            assert_eq!((answer.status, answer.header("Content-Encoding")), (200, Some("gzip")));
            let disposition = answer.header("Content-Disposition");
            assert_eq!(disposition, Some("attachment; filename=\"flight.perfetto-trace\""));
            let trace = perfetto::check_window(&gunzip(&answer.body)).expect("it is right");
            let logs = trace.events.iter().filter(|event| &*event.name == "a message");
            assert_eq!(logs.count(), 1);
        }
        for method in ["GET", "HEAD"] {
            assert_eq!(web::ask(server, method, "/debug/pprof/flight?format=v2", &[]).status, 400);
        }
        let refused = web::get(server, "/debug/pprof/flight?format=v2");
        let expected = "the flight recorder keeps its window in the format \"perfetto\", ";
        assert!(refused.text().starts_with(expected), "{}", refused.text());
    });
}
