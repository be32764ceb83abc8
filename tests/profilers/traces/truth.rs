//! A trace agrees with the threads' own measurements: how long waits took, which goroutine ended them and where, and
//! which event came first.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::mpsc as std_mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtprof::sync::mpsc::sync_channel;
use rtprof::sync::{Condvar, Mutex};
use rtprof::thread::{self, Builder};
use rtprof::trace::{self, Options};
use rtprof_trace_check::{Event, EventType};
use test_support::contention::{About, Moment, Seen, awake, record_everything, thread_id, wait_until_asleep};
use test_support::recording::{Trace, check_stack, has, is_named, record, record_with};
use test_support::trace_go::{Reading, readings};
use test_support::{child, rounds};

use super::skew;

/// Functions that the optimizer cannot merge.
macro_rules! roles {
    ($($role:ident)*) => {
        $(#[inline(never)]
        fn $role<T>(play: impl FnOnce() -> T) -> T {
            black_box(stringify!($role));
            black_box(play())
        })*
    };
}

roles! { locks unlocks awaits notifies receives sends }

/// Starts a goroutine that waits in `body`, and returns when the kernel reports it asleep.
fn waiter<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Waiting<'scope, T> {
    let (send, receive) = std_mpsc::channel();
    let body = move || {
        let id = thread_id();
        send.send((id, awake(id), Instant::now())).expect("the test listens");
        body()
    };
    let thread = Builder::new().name(name.into()).spawn_scoped(scope, body).expect("there can be a few");
    let (id, was_awake, asked) = receive.recv().expect("the thread has begun");
    wait_until_asleep(id);
    Waiting { thread, asked, slept: Instant::now(), hesitated: awake(id) - was_awake }
}

struct Waiting<'scope, T> {
    thread: thread::ScopedJoinHandle<'scope, T>,
    /// Instants before and after it began to wait.
    asked: Instant,
    slept: Instant,
    /// For how long it was awake between these.
    hesitated: Duration,
}

/// A wait as measured by its threads.
struct Waited {
    time: About,
    /// For how long the two threads were awake at the beginning and at the end of the wait: at each of these the clock
    /// is read twice, for the profile and for the trace.
    hesitated: Duration,
}

impl<T> Waiting<'_, T> {
    /// Returns how long the thread waits, if `wake` ends the wait.
    fn until(self, wake: impl FnOnce()) -> Waited {
        let (before, was_awake) = (Instant::now(), awake(thread_id()));
        wake();
        let (after, is_awake) = (Instant::now(), awake(thread_id()));
        self.thread.join().expect("it ends well");
        let time = About { least: before - self.slept, most: after - self.asked };
        Waited { time, hesitated: self.hesitated + (is_awake - was_awake) }
    }
}

/// A wait in the trace: the event that begins it and the event that ends it.
struct RecordedWait<'a> {
    block: Event<'a>,
    unblock: Event<'a>,
}

/// Returns all waits of a trace that have ended, in the states that `-pprof=sync` counts.
fn waits(trace: &Trace) -> Vec<RecordedWait<'_>> {
    let mut open: HashMap<u64, Event<'_>> = HashMap::new();
    let mut waits = Vec::new();
    for event in trace.parsed.events() {
        match event.event_type() {
            EventType::GoBlockSend
            | EventType::GoBlockRecv
            | EventType::GoBlockSelect
            | EventType::GoBlockSync
            | EventType::GoBlockCond => {
                assert!(open.insert(event.g(), event).is_none(), "{event:?}: it waits already");
            }
            EventType::GoUnblock | EventType::GoUnblockLocal => {
                let goroutine = event.target().expect("it names whom it wakes");
                waits.extend(open.remove(&goroutine).map(|block| RecordedWait { block, unblock: event }));
            }
            _ => {}
        }
    }
    waits
}

fn nanos(wait: &RecordedWait<'_>) -> i64 {
    (wait.unblock.time() - wait.block.time()) as i64
}

/// Runs a lock, a condition variable and a channel: three waits each, ended by known goroutines after known times. A
/// thousandth of the longest is more than a page fault takes.
fn script() -> HashMap<&'static str, Vec<Waited>> {
    let mut seen: HashMap<&str, Vec<Waited>> = HashMap::new();
    let (lock, condvar) = (Mutex::new(()), Condvar::new());
    thread::scope(|scope| {
        let run = |seen: &mut HashMap<&'static str, Vec<Waited>>| {
            for length in [3, 20, 1200].map(Duration::from_millis) {
                let guard = lock.lock();
                let waiting = waiter(scope, "second", || locks(|| drop(lock.lock())));
                sleep(length);
                seen.entry("locks").or_default().push(waiting.until(|| unlocks(|| drop(guard))));

                let waiting = waiter(scope, "listener", || awaits(|| condvar.wait(&mut lock.lock())));
                sleep(length);
                let notify = || assert!(notifies(|| condvar.notify_one()), "somebody waits");
                seen.entry("awaits").or_default().push(waiting.until(notify));

                let (sender, receiver) = sync_channel(1);
                let receive = move || receives(|| receiver.recv().expect("something is sent"));
                let waiting = waiter(scope, "receiver", receive);
                sleep(length);
                let send = || sends(|| sender.send(()).expect("somebody receives"));
                seen.entry("receives").or_default().push(waiting.until(send));
            }
        };
        run(&mut seen);
    });
    seen
}

/// The waiting goroutine and its function, and the function that wakes it.
const ROLES: [(&str, &str, &str); 3] =
    [("second", "locks", "unlocks"), ("listener", "awaits", "notifies"), ("receiver", "receives", "sends")];

fn main_goroutine(trace: &Trace) -> (u64, String) {
    let log = trace.parsed.events_of(EventType::UserLog).next().expect("it has logged");
    let name = trace.parsed.goroutine_name(log.g()).expect("it has one");
    (log.g(), name.to_owned())
}

#[test]
fn waits_are_as_long_as_they_were() {
    child::isolated("waits_are_as_long_as_they_were", || {
        record_everything();
        let mut seen = HashMap::new();
        let trace = record(|| {
            trace::log("the waker", "is this one");
            seen = script();
        });
        trace.assert_whole();
        trace.assert_in_order();
        let profile = Seen::now();
        let (waker, name) = main_goroutine(&trace);
        let waits = waits(&trace);
        let perfetto = trace.in_perfetto();
        let mut sums = Vec::new();
        for (who, function, waking) in ROLES {
            let waits: Vec<_> = waits.iter().filter(|wait| has(wait.block, function)).collect();
            assert_eq!(waits.len(), 3, "{function}");
            for (wait, waited) in waits.iter().zip(&seen[function]) {
                waited.time.check(function, nanos(wait));
                check_stack(wait.block, function, who);
                assert_eq!(trace.parsed.goroutine_name(wait.block.g()), Some(who));
                assert_eq!(wait.unblock.event_type(), EventType::GoUnblock, "{:?}", wait.unblock);
                assert_eq!(wait.unblock.g(), waker, "{:?}", wait.unblock);
                check_stack(wait.unblock, waking, &name);
            }
            let sum: i64 = waits.iter().map(|wait| nanos(wait)).sum();
            let blocked = profile.blocked(function);
            assert_eq!(blocked.count, 3, "{function}: one event for both");
            // Both use the same clock. Between the two readings lie a few instructions, a page fault, or the loss of a
            // core.
            let hesitated: Duration = seen[function].iter().map(|waited| waited.hesitated).sum();
            let slack = hesitated.as_nanos() as i64 + sum / 1000;
            let slices = perfetto.slices.iter().filter(|slice| &*slice.begin.category == "wait");
            let theirs = slices
                .filter(|slice| slice.begin.stack.iter().any(|frame| is_named(&frame.function, function)));
            let in_perfetto: Vec<i64> =
                theirs.filter_map(|slice| slice.nanos()).map(|it| it as i64).collect();
            assert_eq!(in_perfetto.len(), 3, "{function}");
            for sum in [sum, in_perfetto.iter().sum()] {
                assert!(
                    (sum - blocked.nanos).abs() < slack,
                    "{function}: {sum} ns and {blocked:?}, {hesitated:?}"
                );
            }
            sums.push((function, sum));
        }
        agree_with_go(&trace, &sums);
    });
}

/// Checks that `go tool trace -pprof=sync` prints the same for each function, up to its rounding to nanoseconds.
fn agree_with_go(trace: &Trace, sums: &[(&str, i64)]) {
    for Reading { go, path, .. } in readings("waits_are_as_long_as_they_were", trace) {
        let profile = go.trace_profile("sync", &path);
        for &(function, sum) in sums {
            let samples = profile.samples().into_iter();
            let of = samples
                .filter(|sample| sample.frames.iter().any(|frame| is_named(&frame.function, function)));
            let (count, nanos) = of
                .fold((0, 0), |(count, nanos), sample| (count + sample.values[0], nanos + sample.values[1]));
            assert_eq!(count, 3, "Go {}: {function}", go.version);
            // Go 1.22 and later move simultaneous events apart by a nanosecond; few events are simultaneous here.
            assert!((nanos - sum).abs() < 1000, "Go {}: {function}: {nanos} ns, not {sum}", go.version);
        }
    }
}

/// A wait for a system call and a wait for the network are in their own profiles.
#[test]
fn other_profiles_agree() {
    child::isolated("other_profiles_agree", || {
        let mut seen = HashMap::new();
        let trace = record(|| {
            for _ in 0..3 {
                let nap = || sleep(Duration::from_millis(5));
                let call = Moment::now();
                trace::syscall(|| locks(nap));
                seen.entry("syscall").or_insert_with(Vec::new).push(Moment::now().since(call));
                let call = Moment::now();
                trace::wait(trace::WaitKind::Net, || receives(nap));
                seen.entry("net").or_insert_with(Vec::new).push(Moment::now().since(call));
            }
        });
        trace.assert_whole();
        for Reading { go, path, .. } in readings("other_profiles_agree", &trace) {
            for (kind, lengths) in seen.iter().filter(|(kind, _)| **kind == "net" || !go.overlooks_starts()) {
                let samples = go.trace_profile(kind, &path).samples();
                let count: i64 = samples.iter().map(|sample| sample.values[0]).sum();
                let nanos: i64 = samples.iter().map(|sample| sample.values[1]).sum();
                let least = Duration::from_millis(15).as_nanos() as i64;
                let most = lengths.iter().copied().sum::<About>();
                assert_eq!(count, 3, "Go {}: {kind}", go.version);
                let range = least..=most.most.as_nanos() as i64 + 10_000;
                assert!(range.contains(&nanos), "Go {}: {kind}: {nanos} ns not in {range:?}", go.version);
            }
        }
    });
}

/// Logs in a round of two threads that wake each other, so many that they are most of the events.
const LOGS: u64 = 8;

fn play(rounds: u64) -> u64 {
    let (to, from) = sync_channel::<u64>(1);
    let (back, answers) = sync_channel::<u64>(1);
    thread::scope(|scope| {
        let answer = move || {
            for number in from {
                for _ in 0..LOGS {
                    trace::log("pong", "");
                }
                back.send(number).expect("the other waits");
            }
        };
        drop(Builder::new().name("pong".into()).spawn_scoped(scope, answer).expect("there can be two"));
        let ask = move || {
            for number in 0..rounds {
                for _ in 0..LOGS {
                    trace::log("ping", "");
                }
                to.send(number).expect("the other waits");
                assert_eq!(answers.recv(), Ok(number));
            }
        };
        drop(Builder::new().name("ping".into()).spawn_scoped(scope, ask).expect("there can be two"));
    });
    rounds * (2 * LOGS + 4)
}

/// Threads on two cores whose clocks may disagree wake each other all the time: in the file no effect is older than its
/// cause, and the statistics say how far events were moved for this.
#[test]
fn causes_are_older_than_effects() {
    child::isolated("causes_are_older_than_effects", || {
        // In traces of some 2*10^5 events each, because validation keeps the whole trace in memory: 10^7 in a long run.
        let traces = rounds(if cfg!(debug_assertions) { 1 } else { 3 }, 50);
        let rounds = if cfg!(debug_assertions) { 4_000 } else { 10_000 };
        let (mut events, mut lifted, mut largest) = (0, 0, Duration::ZERO);
        for _ in 0..traces {
            let options = Options { buffer_memory: 512 << 20, ..Options::default() };
            let mut least = 0;
            let trace = record_with(options, || least = play(rounds));
            trace.assert_whole();
            trace.assert_in_order();
            assert_eq!(trace.parsed.count(EventType::UserLog) as u64, rounds * 2 * LOGS);
            check_causes(&trace);
            assert!(trace.stats.events >= least / 2, "{least} and {:?}", trace.stats);
            events += trace.parsed.events().len();
            lifted += trace.stats.lifted_events;
            largest = largest.max(trace.stats.largest_lift);
        }
        // A lift by a thread's time slice would mean that a tick is read at the wrong place.
        let skew = skew::measured();
        let seen = format!("{events} events, {lifted} lifted, by {largest:?} at most; a skew of {skew:?}");
        println!("{seen}");
        assert!(lifted < events as u64 / 10, "{seen}");
        assert!(largest <= skew * 10, "{seen}");
    });
}

/// Checks that each start follows the wake that made it possible, and each wake its block, by the times in the file.
fn check_causes(trace: &Trace) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut wakes = 0;
    for event in trace.parsed.events() {
        let is_change = !matches!(
            event.event_type(),
            EventType::UserLog | EventType::HeapAlloc | EventType::ProcStart | EventType::ProcStop
        );
        let whose = event.target().filter(|_| is_change).unwrap_or(event.g());
        if whose == 0 || !is_change {
            continue;
        }
        wakes += u64::from(event.event_type() == EventType::GoUnblock);
        let before = last.insert(whose, event.tick()).unwrap_or(0);
        assert!(event.tick() >= before, "{event:?} of g {whose} is older than its cause, at tick {before}");
    }
    assert!(wakes > 0, "nobody woke anybody");
}
