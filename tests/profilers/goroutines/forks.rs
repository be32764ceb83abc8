//! Snapshots in forked children whose parent was taking a snapshot.

use rtprof::sync::mpsc;
use rtprof::{goroutine_profile, thread};
use test_support::{Background, fork, rounds, until};

#[test]
fn a_child_has_itself() {
    fork::isolated("a_child_has_itself", "", || {
        let background = Background::default();
        thread::scope(|scope| {
            let (end, ends) = mpsc::channel::<()>();
            scope.spawn(move || ends.recv().ok());
            for _ in 0..2 {
                scope.spawn(|| background.repeat(|| drop(goroutine_profile())));
            }
            // Wakes and waits all the time, so that a fork sometimes happens while its stack is being read.
            scope.spawn(|| background.repeat(|| thread::sleep(std::time::Duration::from_micros(1))));
            let _ends = background.ends_here();
            until("all are there", || goroutine_profile().len() >= 5);
            for number in 0..rounds(6, 30) {
                fork::in_a_child("a snapshot", || {
                    let all = goroutine_profile();
                    assert_eq!(all.len(), 1, "{number}: {all:?}");
                    // Waits in the child end too.
                    thread::sleep(std::time::Duration::from_micros(1));
                    let text = rtprof::stack(true);
                    assert!(text.contains("a_child_has_itself"), "{text}");
                    let new = std::thread::spawn(|| goroutine_profile().len());
                    assert_eq!(new.join().expect("it does not panic"), 2);
                });
            }
            drop(end);
        });
    });
}
