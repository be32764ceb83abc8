//! The part for calls of the C library as a program makes them, and for programs that make many calls. Built with the
//! feature `interpose` and without.
//!
//! Requests: `rates BLOCK MUTEX`, `trace on|off`; `call NAME COUNT` (answers ns for one call of the C library's own
//! function, of the same again, and of the function that the program is linked with), `walk FOLDER TIMES`
//! (answers ms and ms of CPU time for one walk over all files below the folder, and their number), `service MILLIS`
//! (answers µs of CPU time for one request to a server of tokio, its median latency, the 99th percentile of the
//! latency, and the number of requests).

mod service;
#[path = "../traced.rs"]
mod traced;
mod walk;

use std::path::Path;
use std::time::Duration;

use rtprof_benches::calls::Calls;
use rtprof_benches::serve::serve;
use rtprof_benches::team::Placement;

use service::Service;
use traced::set_trace;

fn main() {
    // The kernel opens files faster for a program with one thread. A trace adds a thread, so all contenders get a
    // second thread.
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    let mut calls = None;
    let mut service = None;
    serve(|request| match request.word() {
        "rates" => {
            rtprof::set_block_profile_rate(request.number() as u64);
            rtprof::set_mutex_profile_fraction(request.number() as i64);
            vec![]
        }
        "trace" => {
            set_trace(request.word() == "on");
            vec![]
        }
        "call" => {
            // Each call takes a few hundred nanoseconds, so all run on one core.
            Placement::OneCore.take(0);
            let calls = calls.get_or_insert_with(Calls::new);
            let nanos = calls.measure(request.word(), request.number());
            Placement::Anywhere.take(0);
            nanos.to_vec()
        }
        "walk" => walk::measure(Path::new(request.word()), request.number()).to_vec(),
        "service" => {
            let service = service.get_or_insert_with(Service::start);
            service.measure(Duration::from_millis(request.number() as u64)).to_vec()
        }
        other => panic!("unknown request {other}"),
    });
}
