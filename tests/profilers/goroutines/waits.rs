//! Every kind of wait has its reason, and the stack of the function that waits.

use std::hint::black_box;
use std::time::Duration;

use rtprof::pprof::{labels, lookup, set_labels};
use rtprof::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore, mpsc};
use rtprof::thread;
use rtprof::trace::{self, WaitKind};
use rtprof::{GoroutineRecord, goroutine_profile};
use test_support::{child, until};

use super::names::find;

/// The objects that the threads wait for, until they are released.
struct Held {
    mutex: Mutex<()>,
    rw_lock: RwLock<()>,
    condition: Condvar,
    condition_mutex: Mutex<bool>,
    once: Once,
    semaphore: Semaphore,
    ends: Mutex<()>,
}

macro_rules! roles {
    ($($role:ident: $what:ident => $body:expr;)*) => {
        $(#[inline(never)]
        fn $role($what: &Held) {
            $body;
            // Keeps the function from being merged with another one.
            black_box(stringify!($role));
        })*
    };
}

roles! {
    locks: held => drop(held.mutex.lock());
    reads: held => drop(held.rw_lock.read());
    writes: held => drop(held.rw_lock.write());
    waits_for_condition: held => {
        let mut is_met = held.condition_mutex.lock();
        held.condition.wait_while(&mut is_met, |is_met| !*is_met);
    };
    waits_for_once: held => held.once.call_once(|| ());
    acquires: held => drop(held.semaphore.acquire());
    meets: held => {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            // The other thread arrives at the barrier at the end of the test.
            scope.spawn(|| {
                drop(held.ends.lock());
                barrier.wait();
            });
            barrier.wait();
        });
    };
    receives: held => {
        let (send, receive) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                drop(held.ends.lock());
                drop(send);
            });
            receive.recv().ok();
        });
    };
    sends: held => {
        let (send, receive) = mpsc::sync_channel(1);
        send.send(1).expect("there is room");
        thread::scope(|scope| {
            scope.spawn(move || {
                drop(held.ends.lock());
                drop(receive);
            });
            send.send(2).ok();
        });
    };
    joins: held => thread::scope(|scope| {
        scope.spawn(|| drop(held.ends.lock())).join().expect("it does not panic");
    });
    leaves_a_scope: held => thread::scope(|scope| {
        scope.spawn(|| drop(held.ends.lock()));
    });
    announces: held => trace::wait(WaitKind::Net, || held.ends.lock_elsewhere());
    sleeps: held => while !*held.condition_mutex.lock() {
        thread::sleep(Duration::from_millis(200));
    };
    parks: held => while !*held.condition_mutex.lock() {
        thread::park_timeout(Duration::from_millis(200));
    };
}

/// Releases all objects when it is dropped, by a panic too: then the failure is reported instead of a hang.
struct LetGo<'a>(&'a Held);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        *self.0.condition_mutex.lock() = true;
        self.0.condition.notify_all();
        self.0.semaphore.add_permits(1);
    }
}

trait LockElsewhere {
    fn lock_elsewhere(&self);
}

/// A wait that rtprof does not record.
impl LockElsewhere for Mutex<()> {
    fn lock_elsewhere(&self) {
        while self.try_lock().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A function to run, its name, and the reason of its wait.
type Role = (fn(&Held), &'static str, &'static str);

const ROLES: [Role; 14] = [
    (locks, "locks", "sync.Mutex.Lock"),
    (reads, "reads", "sync.RWMutex.RLock"),
    (writes, "writes", "sync.RWMutex.Lock"),
    (waits_for_condition, "waits_for_condition", "sync.Cond.Wait"),
    (waits_for_once, "waits_for_once", "once"),
    (acquires, "acquires", "semacquire"),
    (meets, "meets", "barrier"),
    (receives, "receives", "chan receive"),
    (sends, "sends", "chan send"),
    (joins, "joins", "thread join"),
    (leaves_a_scope, "leaves_a_scope", "thread join"),
    (announces, "announces", "IO wait"),
    (sleeps, "sleeps", "sleep"),
    (parks, "parks", "thread park"),
];

/// Returns the lines of a goroutine in a dump.
fn part(dump: &str, id: u64) -> Vec<&str> {
    let head = format!("goroutine {id} [");
    let part = dump.split("\n\n").find(|part| part.starts_with(&head));
    part.unwrap_or_else(|| panic!("no goroutine {id} in {dump}")).lines().collect()
}

#[test]
fn each_kind_has_its_reason_and_its_stack() {
    child::isolated("each_kind_has_its_reason_and_its_stack", || {
        // Waits that the program announces are recorded only while a recorder is on.
        rtprof::set_block_profile_rate(1_000_000_000);
        let held = Held {
            mutex: Mutex::new(()),
            rw_lock: RwLock::new(()),
            condition: Condvar::new(),
            condition_mutex: Mutex::new(false),
            once: Once::new(),
            semaphore: Semaphore::new(0),
            ends: Mutex::new(()),
        };
        let own = goroutine_profile()[0].id;
        thread::scope(|scope| {
            let (mutex, writer, ends) = (held.mutex.lock(), held.rw_lock.write(), held.ends.lock());
            let (begin, begun) = mpsc::channel();
            let (end_once, once_ends) = mpsc::channel::<()>();
            let held = &held;
            scope.spawn(move || {
                held.once.call_once(|| {
                    begin.send(()).expect("it is waited for");
                    once_ends.recv().ok();
                });
            });
            begun.recv().expect("the initialisation begins");
            let _let_go = LetGo(held);
            for (role, name, _) in ROLES {
                let body = move || {
                    let _labels = set_labels(labels(&[("role", name)]));
                    role(held);
                };
                thread::Builder::new().name(name.into()).spawn_scoped(scope, body).expect("a thread");
            }
            for (_, name, reason) in ROLES {
                until(name, || find(name).is_some_and(|goroutine| goroutine.state.to_string() == reason));
            }
            let dump = rtprof::stack(true);
            for (_, name, reason) in ROLES {
                let goroutine = find(name).expect("it waits");
                assert_eq!(goroutine.labels, [("role".to_owned(), name.to_owned())]);
                assert_eq!(goroutine.created_by, own, "{name}");
                let (file, _) = goroutine.started_at.expect("it was started here");
                assert_eq!(file, file!(), "{name}");
                let lines = part(&dump, goroutine.id);
                assert_eq!(lines[0], format!("goroutine {} [{reason}]:", goroutine.id));
                let about = format!(
                    "\n# goroutine {}: thread {} \"{name}\" {{role: {name}}}\n\n",
                    goroutine.id, goroutine.thread_id
                );
                assert!(dump.contains(&about), "{about} in {dump}");
                // The stack reaches from the function that waits to the thread's first function, with its creator.
                let role = format!("{}::{name}", module_path!());
                // Or a closure in that function.
                let beneath = lines[1].strip_prefix(&role).unwrap_or_else(|| panic!("{lines:#?}"));
                assert!(beneath.starts_with(['(', ':']), "{lines:#?}");
                let [.., start, _, creator, place] = &lines[..] else { panic!("{lines:#?}") };
                assert_eq!(*start, "thread start(...)", "{lines:#?}");
                assert!(
                    creator.starts_with(concat!("created by ", module_path!(), "::each_kind")),
                    "{lines:#?}"
                );
                assert!(creator.ends_with(&format!(" in goroutine {own}")), "{lines:#?}");
                assert!(place.contains(file!()), "{lines:#?}");
            }
            // The profile lists them by stack and labels.
            let mut text = Vec::new();
            lookup("goroutine").expect("it is built in").write_to(&mut text, 1).expect("a vector takes all");
            let text = String::from_utf8(text).expect("it is text");
            assert!(text.starts_with("goroutine profile: total "), "{text}");
            for (_, name, _) in ROLES {
                let label = format!("# labels: {{\"role\":\"{name}\"}}\n");
                // This includes the labels of the threads that the thread has started.
                assert!(text.contains(&label), "{name} in {text}");
            }

            drop((mutex, writer, ends, end_once));
        });
    });
}

#[test]
fn a_slice_takes_all_or_nothing() {
    child::isolated("a_slice_takes_all_or_nothing", || {
        let (end, ends) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || ends.recv());
        until("it waits", || goroutine_profile().iter().any(|goroutine| goroutine.wait_reason().is_some()));
        let (n, ok) = rtprof::goroutine_profile_into(&mut []);
        assert!(!ok && n >= 2, "{n}");
        assert_eq!(n, rtprof::num_goroutine());
        let mut short = vec![GoroutineRecord::default(); n - 1];
        assert_eq!(rtprof::goroutine_profile_into(&mut short), (n, false));
        assert!(short.iter().all(|record| record.id == 0), "nothing is written");
        let mut records = vec![GoroutineRecord::default(); n + 1];
        assert_eq!(rtprof::goroutine_profile_into(&mut records), (n, true));
        assert!(records[..n].iter().all(|record| record.id != 0 && !record.stack().is_empty()));
        assert_eq!(records[n].id, 0);
        drop(end);
        waiting.join().expect("it has ended").expect_err("nothing was sent");
    });
}

/// The thread that takes the snapshot comes first, with the stack of the call, even if it has announced a wait.
#[test]
fn the_current_one_comes_first_and_runs() {
    child::isolated("the_current_one_comes_first_and_runs", || {
        let check = |all: Vec<GoroutineRecord>, name: &str| {
            assert_eq!((&*all[0].name, all[0].wait_reason()), (name, None));
            assert!(all[1..].is_sorted_by_key(|goroutine| goroutine.id));
        };
        let asks = move || {
            check(goroutine_profile(), "asks");
            check(trace::wait(WaitKind::Recv, goroutine_profile), "asks");
            let own = rtprof::stack(false);
            assert!(own.contains("the_current_one_comes_first_and_runs::{"), "{own}");
            assert!(own.trim_end().lines().count() > 4 && !own.contains("\n\n"), "{own}");
        };
        thread::Builder::new()
            .name("asks".into())
            .spawn(asks)
            .expect("a thread")
            .join()
            .expect("all is right");
    });
}
