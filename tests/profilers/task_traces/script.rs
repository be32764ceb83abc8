//! Waits of known length, ended by known wakers: in the trace, in the output of Go's tools, and in the block profile.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rtprof::task::Instrument;
use rtprof::trace::WaitKind;
use rtprof_trace_check::{Event, EventType};
use test_support::child;
use test_support::contention::{Seen, record_everything};
use test_support::profile::Profile;
use test_support::recording::{Trace, has, is_named, record};
use test_support::trace_go;
use test_support::trace_go::{Reading, readings};
use tokio::sync::{Notify, mpsc, oneshot};

/// How long a task waits, and how long it then has to wait for the thread.
pub(crate) const WAIT: Duration = Duration::from_millis(10);
const TIMES: u32 = 3;

/// The instants around a wait.
#[derive(Clone, Copy)]
struct Moments {
    asked: Instant,
    /// The task was suspended before this.
    suspended: Instant,
    waking: Instant,
    woken: Instant,
    /// The thread was busy with other work until this.
    freed: Instant,
    resumed: Instant,
}

/// A lower and an upper bound.
#[derive(Clone, Copy, Debug, Default)]
struct Between(Duration, Duration);

impl Between {
    fn and(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }

    #[track_caller]
    fn check(self, what: &str, nanos: i64) {
        let found = Duration::from_nanos(nanos as u64);
        assert!(self.0 <= found && found <= self.1, "{what}: {found:?} is not within {self:?}");
    }
}

impl Moments {
    fn waited(self) -> Between {
        Between(self.waking - self.suspended, self.woken - self.asked)
    }

    fn delayed(self) -> Between {
        Between(self.freed - self.woken, self.resumed - self.waking)
    }
}

type Log = Arc<Mutex<BTreeMap<&'static str, Vec<Moments>>>>;

/// Runs on a runtime of one thread: when the waker runs, the waiting task has been suspended; and as long as the waker
/// continues, the task cannot run.
async fn play<W, F>(
    log: &Log,
    what: &'static str,
    waits: impl FnOnce() -> W,
    wakes: impl FnOnce() -> F + Send + 'static,
) where
    W: Future<Output = ()> + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let waits = waits();
    let waiter = async move {
        let asked = Instant::now();
        waits.await;
        (asked, Instant::now())
    };
    let waiter = tokio::spawn(waiter.instrument_named(&format!("waits {what}")));
    let waker = async move {
        let suspended = Instant::now();
        std::thread::sleep(WAIT);
        let waking = Instant::now();
        wakes().await;
        let woken = Instant::now();
        std::thread::sleep(WAIT);
        (suspended, waking, woken, Instant::now())
    };
    let waker = tokio::spawn(waker.instrument_named(&format!("wakes {what}")));
    let (suspended, waking, woken, freed) = waker.await.expect("it ends");
    let (asked, resumed) = waiter.await.expect("it ends");
    let moments = Moments { asked, suspended, waking, woken, freed, resumed };
    log.lock().expect("nobody panics").entry(what).or_default().push(moments);
}

pub(crate) type Play<'p> = Pin<Box<dyn Future<Output = ()> + Send + 'p>>;

/// Futures whose polls are functions that the optimizer can neither inline nor merge.
macro_rules! roles {
    ($($role:ident)*) => {
        $(fn $role<'p>(wait: impl Future<Output: Send> + Send + 'p) -> Play<'p> {
            Box::pin(async {
                drop(wait.await);
                black_box(stringify!($role));
            })
        })*
    };
}

roles! { receives sends locks is_notified has_deadline selects tells waits_for_device joins wakes }

/// The kind of wait, its event in the trace, and whether the tool has it in `-pprof=sync`.
const KINDS: [(&str, EventType, bool); 9] = [
    ("receives", EventType::GoBlockRecv, true),
    ("sends", EventType::GoBlockSend, true),
    ("locks", EventType::GoBlockSync, true),
    ("is_notified", EventType::GoBlockCond, true),
    ("has_deadline", EventType::GoBlockRecv, true),
    ("selects", EventType::GoBlockSelect, true),
    ("tells", EventType::GoBlockSync, true),
    ("joins", EventType::GoBlockSync, true),
    ("waits_for_device", EventType::GoBlockNet, false),
];

async fn script(log: &Log) {
    const LONG: Duration = Duration::from_secs(3600);
    for _ in 0..TIMES {
        let (send, mut receive) = mpsc::channel::<u8>(1);
        let receiving = || async move { receives(async { receive.recv().await }).await };
        play(log, "receives", receiving, || wakes(async move { send.send(1).await })).await;

        let (send, mut receive) = mpsc::channel::<u8>(1);
        send.try_send(1).expect("there is room");
        let sending = || async move { sends(async { send.send(2).await }).await };
        let (keep, kept) = oneshot::channel();
        let receiving = || {
            wakes(async move {
                receive.try_recv().expect("there is one");
                keep.send(receive).ok();
            })
        };
        play(log, "sends", sending, receiving).await;
        drop(kept);

        let lock = Arc::new(tokio::sync::Mutex::new(()));
        let held = lock.clone().lock_owned().await;
        let locking = || async move { locks(async { drop(lock.lock().await) }).await };
        play(log, "locks", locking, || wakes(async move { drop(held) })).await;

        let notify = Arc::new(Notify::new());
        let notified = notify.clone();
        let waiting = || async move { is_notified(async { notified.notified().await }).await };
        play(log, "is_notified", waiting, || wakes(async move { notify.notify_one() })).await;

        let (send, receive) = oneshot::channel::<u8>();
        let waiting = || has_deadline(tokio::time::timeout(LONG, receive));
        play(log, "has_deadline", waiting, || wakes(async move { send.send(1).expect("it lives") })).await;

        let (send, mut receive) = mpsc::channel::<u8>(1);
        let (_other, mut never) = mpsc::channel::<u8>(1);
        let waiting = || async move {
            selects(async {
                // In a fixed order, so that there is a single stack.
                tokio::select! { biased; _ = receive.recv() => {} _ = never.recv() => {} }
            })
            .await;
        };
        play(log, "selects", waiting, || wakes(async move { send.send(1).await })).await;

        // A wait that the trace cannot recognise by itself, so it is announced.
        let (send, receive) = oneshot::channel::<u8>();
        let waiting = || tells(rtprof::task::wait(WaitKind::Sync, receive));
        play(log, "tells", waiting, || wakes(async move { send.send(1).expect("it lives") })).await;
        let (send, receive) = oneshot::channel::<u8>();
        let waiting = || waits_for_device(rtprof::task::wait(WaitKind::Net, receive));
        play(log, "waits_for_device", waiting, || wakes(async move { send.send(1).expect("it lives") }))
            .await;

        let (send, receive) = oneshot::channel::<u8>();
        let other = tokio::spawn(receive);
        let waiting = || joins(other);
        let ending = || {
            wakes(async move {
                send.send(1).expect("it lives");
                // The executor polls the joined task, whose end wakes the joining one.
                tokio::task::yield_now().await;
            })
        };
        play(log, "joins", waiting, ending).await;
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there is a thread")
}

/// Returns the number of waits of a function in a profile, and their sum.
fn sum(profile: &Profile, function: &str) -> (i64, i64) {
    let samples = profile.samples();
    let of =
        samples.iter().filter(|sample| sample.frames.iter().any(|frame| is_named(&frame.function, function)));
    of.fold((0, 0), |(count, nanos), sample| (count + sample.values[0], nanos + sample.values[1]))
}

/// Returns the first event of `types` that happens to a goroutine after another event.
fn next<'t>(story: &[Event<'t>], after: Event<'_>, types: &[EventType]) -> Event<'t> {
    let later = story.iter().skip_while(|event| event.offset() != after.offset());
    *later.skip(1).find(|event| types.contains(&event.event_type())).expect("the story goes on")
}

/// Returns the only block event in the story whose stack contains a function.
#[track_caller]
fn only<'t>(story: &[Event<'t>], function: &str) -> Event<'t> {
    let begins =
        |event: &&Event<'_>| event.event_type().name().starts_with("GoBlock") && has(**event, function);
    let found: Vec<_> = story.iter().filter(begins).copied().collect();
    let all = || story.iter().map(|event| (*event, event.functions())).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "waits of {function}: {found:?} in {:#?}", all());
    found[0]
}

#[test]
fn waits_are_as_long_as_the_program_knows_and_ended_by_whom_it_knows() {
    child::isolated("waits_are_as_long_as_the_program_knows_and_ended_by_whom_it_knows", || {
        record_everything();
        let log = Log::default();
        let trace = record(|| runtime().block_on(script(&log)));
        trace.assert_whole();
        trace.assert_in_order();
        let log = log.lock().expect("nobody panics");
        for (what, event_type, _) in KINDS {
            check_kind(&trace, what, event_type, &log[what]);
        }
        let all = |what: &str, part: fn(Moments) -> Between| {
            log[what].iter().map(|moments| part(*moments)).fold(Between::default(), Between::and)
        };
        let seen = Seen::now();
        for (what, ..) in KINDS {
            let blocked = seen.blocked(what);
            assert_eq!(blocked.count, i64::from(TIMES), "{what} in the block profile");
            all(what, Moments::waited).check(&format!("{what} in the block profile"), blocked.nanos);
        }
        for Reading { go, path, .. } in readings("script", &trace) {
            let profiles = ["sync", "sched", "net"].map(|kind| go.trace_profile(kind, &path));
            let [sync, sched, net] = &profiles;
            for (what, _, is_sync) in KINDS {
                let (count, nanos) = sum(if is_sync { sync } else { net }, what);
                let about = format!("{what} by Go {}", go.version);
                assert_eq!(count, i64::from(TIMES), "{about}");
                all(what, Moments::waited).check(&about, nanos);
            }
            // Latency is charged to the stack that wakes the task.
            let delayed = KINDS.iter().filter(|(what, ..)| *what != "joins");
            let delays = delayed.map(|(what, ..)| all(what, Moments::delayed).0).sum::<Duration>();
            let found = sum(sched, "wakes").1;
            assert!(
                go.overlooks_starts() || found as u128 >= delays.as_nanos(),
                "Go {}: {found} ns, and {delays:?}",
                go.version
            );
        }
        trace_go::check("task-script", &trace, &[]);
    });
}

#[track_caller]
fn check_kind(trace: &Trace, what: &str, event_type: EventType, moments: &[Moments]) {
    let waiters: Vec<u64> = trace.parsed.goroutines_named(&format!("waits {what}")).collect();
    let wakers: Vec<u64> = trace.parsed.goroutines_named(&format!("wakes {what}")).collect();
    assert_eq!((waiters.len(), wakers.len()), (moments.len(), moments.len()), "{what}");
    for (waiter, moments) in waiters.into_iter().zip(moments) {
        let story = trace.story(waiter);
        let block = only(&story, what);
        assert_eq!(block.event_type(), event_type, "{what}: {:#?}", block.functions());
        let wake = next(&story, block, &[EventType::GoUnblock, EventType::GoUnblockLocal]);
        let start = next(&story, wake, &[EventType::GoStart, EventType::GoStartLocal]);
        moments.waited().check(what, (wake.time() - block.time()) as i64);
        // For a join the waker is the joined task.
        if what != "joins" {
            moments.delayed().check(what, (start.time() - wake.time()) as i64);
            assert!(
                has(wake, "wakes") && wakers.contains(&wake.g()),
                "{what}: {wake:?} {:#?}",
                wake.functions()
            );
        }
        assert_eq!(block.functions().last().copied(), Some(&*format!("waits {what}")));
    }
}
