use super::super::polls::Polls;
use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering as Std};

/// A task whose executor wakers are counted.
#[derive(Default)]
struct Counted {
    shared: SharedWaker<Token>,
    polls: Polls,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    /// Tokens that exist.
    live: AtomicI32,
    made: AtomicU32,
    woken: AtomicU32,
    /// The number of times that the slot was given back.
    ends: AtomicU32,
}

/// Stands for a waker of the executor.
struct Token {
    is_alive: bool,
    tally: Arc<Tally>,
}

impl Drop for Token {
    fn drop(&mut self) {
        assert!(self.is_alive);
        self.is_alive = false;
        self.tally.live.fetch_sub(1, Std::Relaxed);
    }
}

impl Counted {
    fn begin() -> Self {
        let task = Self::default();
        task.shared.begin();
        task
    }

    fn token(&self) -> Token {
        self.tally.made.fetch_add(1, Std::Relaxed);
        self.tally.live.fetch_add(1, Std::Relaxed);
        Token { is_alive: true, tally: self.tally.clone() }
    }

    fn settle(&self, released: Released<Token>) {
        if released.is_last {
            self.tally.ends.fetch_add(1, Std::Relaxed);
        }
    }

    /// Runs `leaf` inside a poll.
    fn poll(&self, leaf: impl FnOnce()) {
        self.polls.enter();
        leaf();
        self.polls.leave();
    }

    #[cfg(not(loom))]
    fn is_woken(&self) -> bool {
        self.shared.get().woken_after() == self.polls.get().count()
    }

    /// Clones the waker as a leaf does in a poll.
    fn share(&self) {
        match self.shared.share() {
            Share::Counted => {}
            // SAFETY: this is the thread that polls.
            Share::Empty => unsafe { self.shared.put(self.token()) },
            Share::Full => panic!("there are few"),
        }
    }

    fn wake_by(&self, token: &Token) {
        assert!(token.is_alive);
        self.tally.woken.fetch_add(1, Std::Relaxed);
    }

    /// Wakes the task by a clone that the caller holds.
    fn wake(&self) {
        if let Some(released) = self.shared.release_to_wake(self.polls.get().count()) {
            self.wake_by(released.waker.as_ref().expect("held for the clone"));
            return self.settle(released);
        }
        self.shared.note_wake(|| self.polls.get().count(), || false);
        // SAFETY: the clone is held.
        unsafe { self.shared.with(|token| self.wake_by(token)) };
        self.release();
    }

    /// Wakes the task by the waker of a poll. Returns whether a waker of the executor was stored.
    fn wake_in_poll(&self, is_own: bool) -> bool {
        self.shared.note_wake(|| self.polls.get().count(), || is_own);
        let is_held = self.shared.hold();
        if is_held {
            // SAFETY: `hold` has counted a clone.
            unsafe { self.shared.with(|token| self.wake_by(token)) };
            self.release();
        }
        is_held
    }

    fn release(&self) {
        self.settle(self.shared.release());
    }

    fn end(&self) {
        self.settle(self.shared.end());
    }

    fn live(&self) -> i32 {
        self.tally.live.load(Std::Relaxed)
    }

    fn check_end(&self) {
        assert_eq!(self.tally.ends.load(Std::Relaxed), 1, "the slot is given up once");
        assert_eq!(self.live(), 0, "each waker of the executor's was dropped");
        assert_eq!(self.shared.get(), WakerSeen(0));
    }
}

#[cfg(not(loom))]
#[test]
fn the_executors_waker_is_held_as_long_as_there_are_clones() {
    let task = Counted::begin();
    task.poll(|| task.share());
    assert_eq!(task.live(), 1, "a leaf may wake the task");
    assert!(task.shared.acquire());
    task.release();
    assert_eq!(task.live(), 1);
    task.wake();
    assert_eq!((task.live(), task.tally.woken.load(Std::Relaxed)), (0, 1), "it was used up");
    assert!(task.is_woken());
    assert!(!task.shared.acquire(), "no waker is left");
    task.poll(|| {
        assert!(!task.is_woken());
        assert!(!task.wake_in_poll(true), "there is no clone");
        assert!(task.is_woken());
        task.share();
        assert!(task.wake_in_poll(true));
        task.share();
        task.release();
        task.release();
        assert_eq!(task.live(), 0, "no leaf has kept it");
    });
    assert!(task.is_woken(), "in the last poll");
    task.poll(|| {
        assert!(!task.is_woken());
        task.share();
        task.wake();
    });
    assert_eq!((task.live(), task.is_woken()), (0, true), "it woke itself");
    task.poll(|| task.share());
    task.end();
    assert_eq!(task.live(), 1, "clones outlive the future");
    assert!(!task.shared.acquire());
    task.wake();
    task.check_end();
}

#[cfg(not(loom))]
#[cfg_attr(miri, ignore = "takes a minute there")]
#[test]
fn more_clones_than_can_be_counted_are_refused() {
    let task = Counted::begin();
    task.poll(|| {
        (0..MANY).for_each(|_| task.share());
        assert_eq!(task.shared.share(), Share::Full);
        assert!(!task.shared.acquire());
        (0..MANY).for_each(|_| task.release());
    });
    task.end();
    task.check_end();
}

#[cfg(loom)]
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A leaf's clone wakes the task, or is dropped, while the task is polled for another reason and clones anew.
#[cfg(loom)]
#[test]
fn loom_the_last_clone_is_given_up_during_a_poll() {
    for wakes in [true, false] {
        check(move || {
            let task = loom::sync::Arc::new(Counted::begin());
            task.poll(|| task.share());
            let leaf = {
                let task = task.clone();
                loom::thread::spawn(move || if wakes { task.wake() } else { task.release() })
            };
            task.poll(|| task.share());
            leaf.join().unwrap();
            assert_eq!(task.live(), 1, "held as long as a clone is there");
            assert_eq!(task.tally.woken.load(Std::Relaxed), u32::from(wakes));
            task.release();
            task.end();
            task.check_end();
        });
    }
}

/// Two clones are given up while a poll begins and ends.
#[cfg(loom)]
#[test]
fn loom_all_clones_are_given_up_during_a_poll() {
    check(|| {
        let task = loom::sync::Arc::new(Counted::begin());
        task.poll(|| {
            task.share();
            task.share();
        });
        let leaves: [_; 2] = std::array::from_fn(|leaf| {
            let task = task.clone();
            loom::thread::spawn(move || if leaf == 0 { task.wake() } else { task.release() })
        });
        task.poll(|| ());
        for leaf in leaves {
            leaf.join().unwrap();
        }
        assert_eq!(task.live(), 0);
        task.end();
        task.check_end();
    });
}

/// The waker of a poll is used on another thread, while a leaf releases the last clone and the poll clones anew.
#[cfg(loom)]
#[test]
fn loom_the_waker_of_a_poll_is_used_elsewhere() {
    check(|| {
        let task = loom::sync::Arc::new(Counted::begin());
        task.poll(|| task.share());
        let leaf = {
            let task = task.clone();
            loom::thread::spawn(move || task.release())
        };
        task.poll(|| {
            let elsewhere = {
                let task = task.clone();
                loom::thread::spawn(move || task.wake_in_poll(false))
            };
            task.share();
            elsewhere.join().unwrap();
        });
        leaf.join().unwrap();
        assert_eq!(task.live(), 1, "held as long as a clone is there");
        task.release();
        task.end();
        task.check_end();
    });
}

/// A wake that coincides with a poll is counted to this poll or the previous one.
#[cfg(loom)]
#[test]
fn loom_a_wake_is_of_the_poll_that_it_ends() {
    check(|| {
        let task = loom::sync::Arc::new(Counted::begin());
        task.poll(|| {
            task.share();
            task.share();
        });
        let leaf = {
            let task = task.clone();
            loom::thread::spawn(move || task.wake())
        };
        task.poll(|| ());
        leaf.join().unwrap();
        // Woken before that poll began, or since.
        let after = task.shared.get().woken_after();
        assert!((1..=2).contains(&after), "{after}");
        task.release();
        task.end();
        task.check_end();
    });
}

/// A snapshot acquires a clone to wake a task, while the last clone is released and the future ends.
#[cfg(loom)]
#[test]
fn loom_it_is_acquired_at_its_end() {
    check(|| {
        let task = loom::sync::Arc::new(Counted::begin());
        task.poll(|| task.share());
        let looks = {
            let task = task.clone();
            loom::thread::spawn(move || {
                if task.shared.acquire() {
                    task.wake();
                }
            })
        };
        let leaf = {
            let task = task.clone();
            loom::thread::spawn(move || task.release())
        };
        task.end();
        looks.join().unwrap();
        leaf.join().unwrap();
        task.check_end();
    });
}
