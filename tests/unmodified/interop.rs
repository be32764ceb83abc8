//! The real `go tool trace`, of both versions, reads what was recorded of unmodified code.

use crate::support::child;
use crate::trace_go::check;
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
