//! Threads that do not wait in our hooks are captured by a signal: they run, wait in the kernel, or no hook has seen
//! them.

use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rtprof::pprof::{labels, lookup, set_labels};
use rtprof::{GoroutineRecord, GoroutineState, goroutine_profile, num_goroutine, thread};
use test_support::{Background, PATIENCE, child, rounds, until};

use super::names::{Names, find, wait_for_end_of_search};

/// Starts a thread of std.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    std::thread::Builder::new().name(name.into()).spawn_scoped(scope, body).expect("a thread")
}

macro_rules! roles {
    ($($role:ident: $background:ident => $body:expr;)*) => {
        $(#[inline(never)]
        fn $role($background: &Background) {
            $background.repeat(|| { $body; });
            // Keeps the function from being merged with another one.
            black_box(stringify!($role));
        })*
    };
}

roles! {
    computes: background => black_box((0..1000).map(black_box).sum::<u64>());
    // Runs in the code that the kernel maps into each process.
    reads_the_clock: background => black_box(Instant::now());
    copies: background => {
        let mut numbers = black_box([1_u64; 512]);
        black_box(&mut numbers).copy_from_slice(black_box(&[2; 512]));
    };
    formats: background => black_box(format!("{:?}", black_box([1.5; 8])));
    yields: background => std::thread::yield_now();
    recurses: background => deep(60);
}

#[inline(never)]
fn deep(depth: usize) -> usize {
    if depth == 0 { black_box((0..1000).sum()) } else { deep(depth - 1) + 1 }
}

/// A function to run, and its name.
type Role = (fn(&Background), &'static str);

const ROLES: [Role; 6] = [
    (computes, "computes"),
    (reads_the_clock, "reads_the_clock"),
    (copies, "copies"),
    (formats, "formats"),
    (yields, "yields"),
    (recurses, "recurses"),
];

/// Threads of std that no hook has seen, at any instruction.
#[test]
fn a_thread_that_runs_tells_where() {
    child::isolated("a_thread_that_runs_tells_where", || {
        let background = &Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for (role, name) in ROLES {
                start(scope, name, move || role(background));
            }
            let (mut names, mut ids) = (Names::default(), [0; ROLES.len()]);
            let mut where_it_is = |all: &[GoroutineRecord], name: &str| {
                names.learn(all);
                let found: Vec<_> = all.iter().filter(|goroutine| goroutine.name == name).collect();
                let [goroutine] = found[..] else {
                    return Err(format!("{name} is there {} times", found.len()));
                };
                let stack = names.of(goroutine);
                let role = format!("{}::{name}", module_path!());
                let is_whole =
                    stack.iter().any(|name| name.starts_with(&role)) && stack.ends_with(&["thread start"]);
                if is_whole { Ok(goroutine.id) } else { Err(format!("{name} in {stack:#?}")) }
            };
            until("all have begun", || {
                let all = goroutine_profile();
                ROLES.iter().all(|(_, name)| where_it_is(&all, name).is_ok())
            });
            for _ in 0..rounds(5, 12) {
                let all = goroutine_profile();
                for (id, (_, name)) in ids.iter_mut().zip(ROLES) {
                    let now = match where_it_is(&all, name) {
                        Ok(now) => now,
                        // The thread has had no core for seconds.
                        Err(error) if error.contains("thread_does_not_answer") => continue,
                        Err(error) => panic!("{error}"),
                    };
                    assert!(*id == 0 || *id == now, "it keeps its number");
                    *id = now;
                }
            }
        });
    });
}

/// Each thread is in a system call that the kernel restarts after a signal, or that std repeats.
#[test]
fn a_thread_that_waits_in_the_kernel_tells_where_and_waits_on() {
    child::isolated("a_thread_that_waits_in_the_kernel_tells_where_and_waits_on", || {
        let (mut reads, write) = UnixStream::pair().expect("two sockets");
        let mutex = &std::sync::Mutex::new(());
        let interrupted = AtomicU64::new(0);
        const NAP: Duration = Duration::from_millis(50);
        let background = &Background::default();
        let naps = || {
            let started = Instant::now();
            std::thread::sleep(NAP);
            assert!(started.elapsed() >= NAP, "a sleep is not cut short");
        };
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            let _labels = set_labels(labels(&[("of", "the one that starts them")]));
            let held = mutex.lock().expect("nobody panics");
            let interrupted = &interrupted;
            let reader = move || {
                let _labels = set_labels(labels(&[("role", "reads")]));
                let result = reads.read(&mut [0]);
                interrupted.fetch_add(result.is_err().into(), Relaxed);
            };
            start(scope, "reads", reader);
            start(scope, "locks", || drop(mutex.lock()));
            start(scope, "sleeps", || background.repeat(naps));
            let parked = start(scope, "parks", || std::thread::park_timeout(PATIENCE));
            for (name, call) in
                [("reads", "recv"), ("locks", "syscall"), ("sleeps", "nanosleep"), ("parks", "syscall")]
            {
                let mut names = Names::default();
                let mut is_there = || {
                    let goroutine = find(name)?;
                    let is_in_call = names.of(&goroutine)[0].contains(call);
                    (goroutine.state == GoroutineState::Syscall && is_in_call).then_some(goroutine)
                };
                until(name, || is_there().is_some());
                let Some(goroutine) = is_there() else { continue };
                let names = names.of(&goroutine);
                assert_eq!(names.last().copied(), Some("thread start"), "{names:#?}");
                let labels: &[_] = if name == "reads" { &[("role".into(), "reads".into())] } else { &[] };
                assert_eq!(goroutine.labels, labels, "those of std's threads are their own");
                assert_eq!(goroutine.wait_reason(), None);
            }
            wait_for_end_of_search();
            for _ in 0..100 {
                assert_eq!(goroutine_profile().len(), num_goroutine());
            }
            drop(held);
            drop(write);
            parked.thread().unpark();
        });
        assert_eq!(interrupted.load(Relaxed), 0, "a read goes on");
    });
}

/// A thread that waits for a moment in our hooks and runs otherwise is listed under one id, before and after hooks
/// register it.
#[test]
fn a_thread_keeps_its_number_when_hooks_find_it() {
    child::isolated("a_thread_keeps_its_number_when_hooks_find_it", || {
        let (first, second) = (Background::default(), Background::default());
        std::thread::scope(|scope| {
            let (_first_ends, _second_ends) = (first.ends_here(), second.ends_here());
            let body = || {
                first.repeat(std::hint::spin_loop);
                second.repeat(|| thread::sleep(Duration::from_micros(10)));
            };
            start(scope, "finds", body);
            until("it runs", || find("finds").is_some());
            let id = find("finds").expect("it runs on").id;
            drop(first.ends_here());
            until("it sleeps", || find("finds").is_some_and(|finds| finds.wait_reason().is_some()));
            assert_eq!(find("finds").expect("it goes on").id, id);
        });
    });
}

/// The signal interrupts hooks anywhere: while they capture stacks, wait, and register themselves.
#[test]
fn hooks_are_interrupted_anywhere() {
    child::isolated("hooks_are_interrupted_anywhere", || {
        rtprof::set_mem_profile_rate(1);
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(1);
        let background = &Background::default();
        let mutex = &rtprof::sync::Mutex::new(0_u64);
        let done = &AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for number in 0..6 {
                let body = move || {
                    background.repeat(|| {
                        let kept: Vec<_> = (1..20).map(|size| vec![0_u8; size * 40]).collect();
                        *mutex.lock() += kept.len() as u64;
                        thread::sleep(Duration::from_nanos(number));
                        done.fetch_add(1, Relaxed);
                    });
                };
                start(scope, "works", body);
            }
            let count = || goroutine_profile().iter().filter(|one| one.name == "works").count();
            until("all are there", || count() == 6);
            let started = Instant::now();
            let mut snapshots = 0;
            while snapshots < 100 || started.elapsed() < test_support::stress() {
                assert_eq!(count(), 6);
                snapshots += 1;
            }
            until("they go on", || done.load(Relaxed) > 1000);
        });
        let mut text = Vec::new();
        lookup("heap").expect("it is built in").write_to(&mut text, 1).expect("a vector takes all");
        assert!(text.starts_with(b"heap profile: "));
    });
}
