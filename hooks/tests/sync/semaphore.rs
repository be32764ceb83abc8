use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rtprof_hooks::sync::{Semaphore, SemaphoreGuard};
use rtprof_runtime::goroutine::wait_reason::WaitReason;

use crate::watched::{PATIENCE, Watched, a_moment, start};

/// A thread that waits for permits, says its number when it has them, and keeps them.
fn asks(semaphore: &Arc<Semaphore>, permits: usize, tx: &mpsc::Sender<usize>) -> Watched<()> {
    let (semaphore, tx) = (semaphore.clone(), tx.clone());
    let thread = start(move || {
        semaphore.acquire_many(permits).forget();
        tx.send(permits).unwrap();
    });
    thread.until_it_waits(WaitReason::Semaphore);
    thread
}

fn soon<T>(from: &mpsc::Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("it comes soon")
}

fn nothing<T>(from: &mpsc::Receiver<T>) -> bool {
    a_moment();
    from.try_recv().is_err()
}

#[test]
fn permits_are_taken_and_come_back() {
    static SEMAPHORE: Semaphore = Semaphore::new(5);
    let one = SEMAPHORE.acquire();
    let three = SEMAPHORE.acquire_many(3);
    assert_eq!((one.permits(), three.permits(), SEMAPHORE.available_permits()), (1, 3, 1));
    assert!(SEMAPHORE.try_acquire_many(2).is_none());
    assert_eq!(SEMAPHORE.try_acquire().map(|guard| guard.permits()), Some(1));
    drop(three);
    assert_eq!(SEMAPHORE.available_permits(), 4);
    // In whatever thread.
    std::thread::scope(|scope| {
        scope.spawn(move || drop(one));
    });
    assert_eq!(SEMAPHORE.available_permits(), 5);
    assert!(SEMAPHORE.try_acquire_many(6).is_none() && SEMAPHORE.try_acquire_many(usize::MAX).is_none());
    assert_eq!(SEMAPHORE.acquire_many(0).permits(), 0);
    assert_eq!(format!("{SEMAPHORE:?}"), "Semaphore { available_permits: 5 }");
    assert_eq!(format!("{:?}", SEMAPHORE.acquire_many(2)), "SemaphoreGuard { permits: 2, .. }");
}

#[test]
fn forgotten_and_leaked_guards_keep_their_permits() {
    let semaphore = Semaphore::new(2);
    semaphore.acquire().forget();
    std::mem::forget(semaphore.acquire());
    assert_eq!(semaphore.available_permits(), 0);
    semaphore.add_permits(3);
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn there_are_never_more_than_the_most() {
    const MOST: usize = Semaphore::MAX_PERMITS;
    assert_eq!(Semaphore::new(usize::MAX).available_permits(), MOST);
    let semaphore = Semaphore::new(MOST);
    let all = semaphore.acquire_many(MOST);
    assert_eq!(semaphore.available_permits(), 0);
    semaphore.add_permits(10);
    drop(all);
    assert_eq!(semaphore.available_permits(), MOST, "it stays at that, and nothing wraps");
    semaphore.add_permits(usize::MAX);
    assert_eq!(semaphore.available_permits(), MOST);
    assert!(semaphore.try_acquire_many(MOST + 1).is_none());

    // The same while somebody waits.
    let semaphore = Arc::new(Semaphore::new(0));
    let (tx, rx) = mpsc::channel();
    let thread = asks(&semaphore, 5, &tx);
    semaphore.add_permits(usize::MAX);
    assert_eq!(soon(&rx), 5);
    thread.end();
    assert_eq!(semaphore.available_permits(), MOST - 5);
}

#[test]
fn requests_are_served_in_order() {
    let semaphore = Arc::new(Semaphore::new(0));
    let (tx, rx) = mpsc::channel();
    let threads = [3, 1, 2, 4].map(|permits| asks(&semaphore, permits, &tx));
    semaphore.add_permits(2);
    assert!(nothing(&rx), "the first one wants three; those behind it do not overtake");
    assert_eq!(semaphore.available_permits(), 2);
    semaphore.add_permits(1);
    assert_eq!(soon(&rx), 3);
    assert!(nothing(&rx));
    // For the next two at once, and half of the last one.
    semaphore.add_permits(5);
    let mut served = [soon(&rx), soon(&rx)];
    served.sort();
    assert_eq!(served, [1, 2]);
    assert!(nothing(&rx));
    assert_eq!(semaphore.available_permits(), 2);
    semaphore.add_permits(2);
    assert_eq!(soon(&rx), 4);
    threads.into_iter().for_each(Watched::end);
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn newcomers_do_not_overtake() {
    let semaphore = Arc::new(Semaphore::new(2));
    let (tx, rx) = mpsc::channel();
    let large = asks(&semaphore, 3, &tx);
    assert!(semaphore.try_acquire().is_none(), "there are two, but somebody waits");
    assert!(semaphore.try_acquire_many(0).is_none());
    assert!(semaphore.try_acquire_for(Duration::from_millis(2)).is_none());
    let small = asks(&semaphore, 1, &tx);
    semaphore.add_permits(1);
    assert_eq!(soon(&rx), 3);
    semaphore.add_permits(1);
    assert_eq!(soon(&rx), 1);
    large.end();
    small.end();
    assert!(semaphore.try_acquire_many(0).is_some());
}

/// Those who use it all the time would starve it, if each were let past.
#[test]
fn a_large_request_is_not_starved() {
    let semaphore = Arc::new(Semaphore::new(4));
    let done = Arc::new(AtomicBool::new(false));
    let users = [(); 3].map(|()| {
        let (semaphore, done) = (semaphore.clone(), done.clone());
        start(move || {
            while !done.load(Relaxed) {
                let _one = semaphore.acquire();
                std::thread::yield_now();
            }
        })
    });
    let wants_all = start({
        let semaphore = semaphore.clone();
        move || (0..20).for_each(|_| drop(semaphore.acquire_many(4)))
    });
    wants_all.end();
    done.store(true, Relaxed);
    users.into_iter().for_each(Watched::end);
    assert_eq!(semaphore.available_permits(), 4);
}

#[test]
fn who_gives_up_lets_the_others_through() {
    let semaphore = Arc::new(Semaphore::new(2));
    let (tx, rx) = mpsc::channel();
    let gives_up = start({
        let semaphore = semaphore.clone();
        // Until the others are seen to wait behind it.
        move || semaphore.try_acquire_many_for(3, Duration::from_secs(5)).is_none()
    });
    gives_up.until_it_waits(WaitReason::Semaphore);
    let one = asks(&semaphore, 1, &tx);
    let two = asks(&semaphore, 2, &tx);
    let also_gives_up = start({
        let semaphore = semaphore.clone();
        move || semaphore.try_acquire_many_until(9, Instant::now() + Duration::from_millis(300)).is_none()
    });
    assert_eq!(soon(&rx), 1);
    assert!(gives_up.end());
    one.end();
    assert!(also_gives_up.end(), "from behind, which helps nobody");
    assert!(nothing(&rx));
    semaphore.add_permits(1);
    assert_eq!(soon(&rx), 2);
    two.end();
    assert_eq!(semaphore.available_permits(), 0);
    semaphore.add_permits(1);
    assert!(semaphore.try_acquire().is_some(), "nobody waits any more");
}

#[test]
fn timeouts_of_nothing_and_of_centuries() {
    let semaphore = Arc::new(Semaphore::new(0));
    assert!(semaphore.try_acquire_for(Duration::ZERO).is_none());
    assert!(semaphore.try_acquire_until(Instant::now()).is_none());
    let started = Instant::now();
    assert!(semaphore.try_acquire_for(Duration::from_millis(5)).is_none());
    assert!(started.elapsed() >= Duration::from_millis(5));
    semaphore.add_permits(1);
    semaphore.try_acquire().expect("nobody waits any more").forget();
    for timeout in [Duration::MAX, Duration::from_secs(1 << 60)] {
        let thread = start({
            let semaphore = semaphore.clone();
            move || semaphore.try_acquire_for(timeout).map(SemaphoreGuard::forget).is_some()
        });
        thread.until_it_waits(WaitReason::Semaphore);
        semaphore.add_permits(1);
        assert!(thread.end());
    }
    semaphore.add_permits(1);
    assert!(semaphore.try_acquire_for(Duration::ZERO).is_some(), "no waiting needed");
}
