//! The real `go tool trace`, of both versions, reads the traces of unmodified code.

use test_support::child;
use test_support::trace_go::check;

use crate::calls::{ended_in, recorded_calls};
use crate::scenes::{pipe, stream};
use crate::traces::recorded;

#[test]
fn go_shows_who_waits_and_who_wakes() {
    child::isolated("go_shows_who_waits_and_who_wakes", || {
        for name in [None, Some("worker")] {
            let (trace, ..) = recorded(name);
            let profiles: [(&str, &[&str]); 2] = [("sync", &["receives"]), ("sched", &["sends"])];
            check("go_shows_who_waits_and_who_wakes", &trace, &profiles);
        }
    });
}

#[test]
fn go_shows_calls_that_block() {
    child::isolated("go_shows_calls_that_block", || {
        let functions: &[&str] = &["waiter"];
        check("go_shows_calls_that_block", &recorded_calls(), &[("net", functions), ("syscall", functions)]);
        for scene in [pipe, stream] {
            check("go_shows_calls_that_block", &ended_in("waits", scene), &[]);
        }
    });
}
