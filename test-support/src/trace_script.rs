//! A program that does everything that a trace can show, once each. Functions have the names that must appear in the
//! events' stacks.

use std::hint::black_box;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use rtprof::collector::{self, StwReason};
use rtprof::sync::mpsc::{channel, sync_channel};
use rtprof::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore};
use rtprof::thread::{self, Builder};
use rtprof::trace::{self, Task, WaitKind};
use rtprof_trace_check::EventType;

use crate::contention::{thread_id, wait_until_asleep};

/// Functions that the optimizer can neither merge nor leave by a tail call.
macro_rules! roles {
    ($($role:ident)*) => {
        $(#[inline(never)]
        pub fn $role<T>(play: impl FnOnce() -> T) -> T {
            black_box(stringify!($role));
            black_box(play())
        })*
    };
}

roles! {
    locks unlocks reads ends_writing writes ends_reading awaits notifies waits_for_once completes_once
    meets completes_meeting acquires releases receives sends_message sends takes_message joins parks parks_for_long unparks sleeps
    waits_for_sync waits_for_cond waits_to_send waits_to_receive selects waits_for_net sleeps_by_itself
    creates yields calls_system collects stops_world sweeps assists allocates
    makes_task makes_child ends_child begins_outer begins_inner logs cycles
}

/// One kind of wait: the goroutine, the function in which it waits, the trace's event, and the function that ends the
/// wait, if that is known.
pub struct Wait {
    pub who: &'static str,
    pub function: &'static str,
    pub event: EventType,
    pub waker: Option<&'static str>,
}

const fn woken(who: &'static str, function: &'static str, event: EventType, waker: &'static str) -> Wait {
    Wait { who, function, event, waker: Some(waker) }
}

const fn alone(who: &'static str, function: &'static str, event: EventType) -> Wait {
    Wait { who, function, event, waker: None }
}

/// All waits that [`waits`] makes.
pub const WAITS: [Wait; 21] = [
    woken("mutex", "locks", EventType::GoBlockSync, "unlocks"),
    woken("reader", "reads", EventType::GoBlockSync, "ends_writing"),
    woken("writer", "writes", EventType::GoBlockSync, "ends_reading"),
    woken("condvar", "awaits", EventType::GoBlockCond, "notifies"),
    woken("once", "waits_for_once", EventType::GoBlockSync, "completes_once"),
    woken("barrier", "meets", EventType::GoBlockSync, "completes_meeting"),
    woken("semaphore", "acquires", EventType::GoBlockSync, "releases"),
    woken("receiver", "receives", EventType::GoBlockRecv, "sends_message"),
    woken("sender", "sends", EventType::GoBlockSend, "takes_message"),
    woken("parker", "parks_for_long", EventType::GoBlockSync, "unparks"),
    alone("joiner", "joins", EventType::GoBlockSync),
    alone("parked", "parks", EventType::GoBlockSync),
    alone("sleeper", "sleeps", EventType::GoSleep),
    alone("own sync", "waits_for_sync", EventType::GoBlockSync),
    alone("own cond", "waits_for_cond", EventType::GoBlockCond),
    alone("own send", "waits_to_send", EventType::GoBlockSend),
    alone("own receive", "waits_to_receive", EventType::GoBlockRecv),
    alone("own select", "selects", EventType::GoBlockSelect),
    alone("own net", "waits_for_net", EventType::GoBlockNet),
    alone("own sleep", "sleeps_by_itself", EventType::GoSleep),
    alone("system", "calls_system", EventType::GoSysCall),
];

/// The goroutine that wakes all of these.
pub const WAKER: &str = "waker";

/// Runs `body` on a goroutine of this name, to its end.
pub fn on<T: Send>(name: &str, body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = Builder::new().name(name.into()).spawn_scoped(scope, body);
        thread.expect("there can be a few threads").join().expect("the script ends well")
    })
}

/// Runs `wait` on a goroutine of this name, and `wake` when it sleeps.
pub fn pair(name: &str, wait: impl FnOnce() + Send, wake: impl FnOnce()) {
    thread::scope(|scope| {
        let (tx, rx) = std_mpsc::channel();
        let wait = move || {
            tx.send(thread_id()).expect("the script listens");
            wait();
        };
        let thread = Builder::new().name(name.into()).spawn_scoped(scope, wait);
        let thread = thread.expect("there can be a few threads");
        wait_until_asleep(rx.recv().expect("the thread has begun"));
        wake();
        thread.join().expect("the script ends well");
    });
}

/// Lets time pass in a way that rtprof does not record.
fn pass() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Makes every kind of wait, woken by the goroutine [`WAKER`] or by an unknown waker.
pub fn waits() {
    on(WAKER, || {
        locks_and_conditions();
        channels();
        let (tx, rx) = std_mpsc::channel();
        let park = move || {
            tx.send(thread::current()).expect("the script listens");
            parks_for_long(thread::park);
        };
        pair("parker", park, || unparks(|| rx.recv().expect("it parks").unpark()));
    });
    on("joiner", || {
        let joiner = thread_id();
        let thread = thread::spawn(move || wait_until_asleep(joiner));
        joins(|| thread.join().expect("it does nothing"));
    });
    on("parked", || parks(|| thread::park_timeout(Duration::from_millis(2))));
    on("sleeper", || sleeps(|| thread::sleep(Duration::from_millis(2))));
    on("own sync", || waits_for_sync(|| trace::wait(WaitKind::Sync, pass)));
    on("own cond", || waits_for_cond(|| trace::wait(WaitKind::Cond, pass)));
    on("own send", || waits_to_send(|| trace::wait(WaitKind::Send, pass)));
    on("own receive", || waits_to_receive(|| trace::wait(WaitKind::Recv, pass)));
    on("own select", || selects(|| trace::wait(WaitKind::Select, pass)));
    on("own net", || waits_for_net(|| trace::wait(WaitKind::Net, pass)));
    on("own sleep", || sleeps_by_itself(|| trace::wait(WaitKind::Sleep, pass)));
    on("system", || calls_system(|| trace::syscall(pass)));
}

fn locks_and_conditions() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    pair("mutex", || locks(|| drop(mutex.lock())), || unlocks(|| drop(guard)));

    let rw_lock = RwLock::new(());
    let guard = rw_lock.write();
    pair("reader", || reads(|| drop(rw_lock.read())), || ends_writing(|| drop(guard)));
    let guard = rw_lock.read();
    pair("writer", || writes(|| drop(rw_lock.write())), || ends_reading(|| drop(guard)));

    let condvar = Condvar::new();
    let wait = || awaits(|| condvar.wait(&mut mutex.lock()));
    pair("condvar", wait, || assert!(notifies(|| condvar.notify_one()), "somebody waits"));

    let once = Once::new();
    let wait = || waits_for_once(|| once.call_once(|| unreachable!("it is being done")));
    thread::scope(|scope| {
        let (tx, rx) = std_mpsc::channel();
        completes_once(|| {
            once.call_once(|| {
                let wait = move || {
                    tx.send(thread_id()).expect("the script listens");
                    wait();
                };
                let thread = Builder::new().name("once".into()).spawn_scoped(scope, wait);
                drop(thread.expect("there can be a few threads"));
                wait_until_asleep(rx.recv().expect("the thread has begun"));
            });
        });
    });

    let barrier = Barrier::new(2);
    let meet = || {
        black_box(barrier.wait());
    };
    pair("barrier", || meets(meet), || completes_meeting(meet));

    let semaphore = Semaphore::new(0);
    pair("semaphore", || acquires(|| drop(semaphore.acquire())), || releases(|| semaphore.add_permits(1)));
}

fn channels() {
    let (sender, receiver) = channel();
    let receive = move || receives(|| receiver.recv().expect("something is sent"));
    pair("receiver", receive, || sends_message(|| sender.send(()).expect("there is a receiver")));

    let (sender, receiver) = sync_channel(1);
    sender.send(()).expect("there is a receiver");
    let send = move || sends(|| sender.send(()).expect("there is a receiver"));
    pair("sender", send, || takes_message(|| receiver.recv().expect("something was sent")));
}

/// Makes goroutines that begin, yield and end.
pub fn goroutines() -> i32 {
    on("creator", || {
        let body = || {
            yields(thread::yield_now);
            thread_id()
        };
        let thread = creates(|| Builder::new().name("created".into()).spawn(body));
        thread.expect("there can be a few threads").join().expect("it ends well")
    })
}

pub const SWEPT: usize = 12_345;

/// Reports what an embedded collector reports.
pub fn collector() {
    on("collector", || {
        for _ in 0..2 {
            collects(|| collector::collect(pass));
        }
        for reason in [StwReason::SweepTermination, StwReason::MarkTermination] {
            stops_world(|| collector::stop_the_world_for(reason, pass));
        }
        sweeps(|| {
            collector::sweep(|outer| {
                collector::sweep(|inner| inner.swept(SWEPT - 5));
                outer.swept(5);
            });
        });
        assists(|| collector::assist(|| collector::assist(pass)));
    });
}

pub const GOAL: u64 = 123_456_789;
pub const ALLOCATED: usize = 3 << 20;

/// Makes the heap grow and shrink by [`ALLOCATED`] bytes.
pub fn heap() {
    on("allocator", || {
        rtprof::set_heap_goal(GOAL);
        let before = rtprof::set_mem_profile_rate(1);
        let tick = || {
            // Points of the curve are at least 5 ms apart.
            std::thread::sleep(Duration::from_millis(8));
            drop(black_box(Box::new(0u64)));
        };
        tick();
        let large = allocates(|| black_box(vec![1u8; ALLOCATED]));
        tick();
        drop(large);
        tick();
        rtprof::set_mem_profile_rate(before);
        rtprof::set_heap_goal(0);
    });
}

/// Makes a task and a subtask that runs on another goroutine; regions and logs inside and outside of them.
pub fn annotations() {
    on("annotator", || {
        logs(|| trace::log("alone", "of no task"));
        let task = makes_task(|| Task::new("request"));
        let child = makes_child(|| task.child("part"));
        on("helper", move || {
            let entered = child.enter();
            trace::with_region("help", || logs(|| trace::log("helping", "größer")));
            drop(entered);
            ends_child(|| child.end());
        });
        let outer = begins_outer(|| trace::start_region("outer"));
        let inner = begins_inner(|| trace::start_region("inner"));
        // In the wrong order.
        drop(outer);
        drop(inner);
        let foreign = trace::start_region("foreign");
        on("foreigner", move || drop(foreign));
        trace::with_region("after", pass);
        drop(task);
    });
}

/// Makes a heap profile cycle, which is a region of the goroutine that requests it.
pub fn heap_cycle() {
    on("profiler", || {
        let before = rtprof::set_mem_profile_rate(1);
        drop(black_box(vec![1u8; 1000]));
        cycles(rtprof::advance_cycle);
        cycles(rtprof::flush_cycle);
        rtprof::set_mem_profile_rate(before);
    });
}

/// Runs all of these.
pub fn everything() {
    goroutines();
    waits();
    collector();
    heap();
    annotations();
    heap_cycle();
}
