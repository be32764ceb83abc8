use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rtprof_hooks::sync::Barrier;
use rtprof_runtime::goroutine::wait_reason::WaitReason;

use crate::watched::{Watched, start};

#[test]
fn alone_nobody_waits_and_everybody_leads() {
    for threads in [0, 1] {
        let barrier = Barrier::new(threads);
        assert!((0..3).all(|_| barrier.wait().is_leader()));
    }
}

#[test]
fn nobody_passes_before_the_last_one_comes_who_leads() {
    let barrier = Arc::new(Barrier::new(4));
    for _ in 0..3 {
        let waiting = [(); 3].map(|()| {
            let barrier = barrier.clone();
            let thread = start(move || barrier.wait().is_leader());
            thread.until_it_waits(WaitReason::Barrier);
            thread
        });
        assert!(waiting.iter().all(|thread| !thread.has_ended()));
        assert!(barrier.wait().is_leader());
        assert_eq!(waiting.map(Watched::end), [false; 3]);
    }
}

/// All threads count, meet, and find the others' counts; a thread that was let out too early, or with the group
/// before, finds too few.
#[test]
fn it_is_as_new_after_each_group() {
    const THREADS: usize = 5;
    const ROUNDS: usize = 2000;
    struct Meeting {
        barrier: Barrier,
        arrived: AtomicUsize,
        leaders: AtomicUsize,
    }
    let meeting = Arc::new(Meeting {
        barrier: Barrier::new(THREADS),
        arrived: AtomicUsize::new(0),
        leaders: AtomicUsize::new(0),
    });
    let threads = [(); THREADS].map(|()| {
        let meeting = meeting.clone();
        start(move || {
            for round in 1..=ROUNDS {
                meeting.arrived.fetch_add(1, Relaxed);
                let leads = meeting.barrier.wait().is_leader();
                meeting.leaders.fetch_add(usize::from(leads), Relaxed);
                let arrived = meeting.arrived.load(Relaxed);
                // Relaxed: that all is seen which came before the barrier is what the barrier is for.
                assert!(arrived >= round * THREADS, "{arrived} in round {round}");
                meeting.barrier.wait();
                assert_eq!(meeting.leaders.load(Relaxed), round, "one of each group");
                meeting.barrier.wait();
            }
        })
    });
    threads.into_iter().for_each(Watched::end);
}

/// More threads than make a group: who of them meet is open, but every group is whole and has one leader.
#[test]
fn groups_form_among_many() {
    const GROUP: usize = 3;
    const WAITS: usize = 3000 * GROUP;
    let shared = Arc::new((Barrier::new(GROUP), AtomicUsize::new(0)));
    let threads = [(); 2 * GROUP + 1].map(|()| {
        let shared = shared.clone();
        start(move || {
            let (barrier, begun) = &*shared;
            let mut led = 0;
            // So many in all, whoever makes them: nobody is left alone at the end.
            while begun.fetch_add(1, Relaxed) < WAITS {
                led += usize::from(barrier.wait().is_leader());
            }
            led
        })
    });
    assert_eq!(threads.map(Watched::end).iter().sum::<usize>(), WAITS / GROUP);
}
