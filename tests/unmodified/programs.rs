//! Whole programs with libraries that do not use rtprof: the times of each thread in their traces agree with what it
//! computed, and with the kernel's account of it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::contention::{is_asleep_or_gone, thread_id};
use test_support::processor;
use test_support::recording::{Trace, record};
use test_support::trace_go::check;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The times of a thread.
#[derive(Clone, Copy, Debug)]
struct Time {
    /// The processor time that it measured itself while it computed. During all of it the goroutine must be shown to
    /// run. `ran` is no such lower bound: it also holds the kernel's work of putting the thread to sleep and of waking
    /// it, while the goroutine waits. How long that takes has no bound on a virtual machine.
    computed: Duration,
    /// The time that passed meanwhile. It also holds what the kernel does not know: the time in which a virtual machine
    /// had no processor.
    passed: Duration,
    /// How long it ran, according to the kernel.
    ran: Duration,
    /// How long it waited for a processor, according to the kernel.
    stood_in_line: Duration,
}

/// What a thread computed, in nanoseconds: the processor time that it measured, and the time that passed.
#[derive(Default)]
struct Computed {
    used: AtomicU64,
    passed: AtomicU64,
}

/// What each thread computed, by the name of the thread.
static COMPUTED: Mutex<Vec<(String, Arc<Computed>)>> = Mutex::new(Vec::new());

thread_local! {
    static COMPUTED_HERE: Arc<Computed> = {
        let own = Arc::default();
        let name = std::thread::current().name().expect("threads that compute have names").to_owned();
        COMPUTED.lock().expect("no panic").push((name, Arc::clone(&own)));
        own
    };
}

/// Computes for this long and counts it as computed by the current thread.
fn burn(time: Duration) {
    let start = Instant::now();
    let used = processor::burn(time);
    let passed = start.elapsed();
    COMPUTED_HERE.with(|own| {
        own.used.fetch_add(used.as_nanos() as u64, Relaxed);
        own.passed.fetch_add(passed.as_nanos() as u64, Relaxed);
    });
}

/// The resolution of the kernel's accounts.
const TICK: Duration = Duration::from_millis(4);

/// Returns the live threads of this process, by name. All but the current thread sleep.
fn times() -> HashMap<String, Time> {
    let computed = COMPUTED.lock().expect("no panic").clone();
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let time = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.expect("it can be read").path();
        let read = |file: &str| std::fs::read_to_string(path.join(file)).expect("the thread lives");
        let nanos = |text: &str| Duration::from_nanos(text.parse().expect("a number"));
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
        if id != thread_id() && !is_asleep_or_gone(id) {
            return None;
        }
        let text = read("schedstat");
        let mut numbers = text.split_whitespace().map(nanos);
        let mut next = || numbers.next().expect("there are three");
        let (ran, stood_in_line) = (next(), next());
        let name = read("comm").trim().to_owned();
        let own = computed.iter().find(|(of, _)| *of == name);
        let sum = |of: fn(&Computed) -> &AtomicU64| own.map_or(0, |(_, own)| of(own).load(Relaxed));
        let computed = Duration::from_nanos(sum(|own| &own.used));
        let passed = Duration::from_nanos(sum(|own| &own.passed));
        Some((name, Time { computed, passed, ran, stood_in_line }))
    };
    tasks.filter_map(time).collect()
}

/// Returns how long the only goroutine of this name ran before `end`, according to the trace.
fn running(trace: &Trace, name: &str, end: u64) -> Duration {
    let own = trace.goroutine(name);
    let (mut since, mut sum) = (None, 0);
    for event in trace.parsed.events().filter(|event| event.time() <= end) {
        match event.event_type() {
            EventType::GoStart | EventType::GoStartLocal | EventType::GoStartLabel
                if event.target() == Some(own) =>
            {
                since = Some(event.time());
            }
            event_type if event_type.leaves() && event.g() == own => {
                sum += since.take().map_or(0, |since| event.time() - since);
            }
            _ => {}
        }
    }
    Duration::from_nanos(sum + since.map_or(0, |since| end - since))
}

/// Records the program, which calls its argument when it has done its work, and compares.
fn compare(test: &str, threads: &[&str], program: impl FnOnce(&mut dyn FnMut())) {
    let mut measured = HashMap::new();
    let trace = record(|| {
        program(&mut || {
            measured = times();
            rtprof::trace::log("worked", "");
        });
    });
    // Threads of the pool end while the trace ends.
    trace.assert_whole_but_for_what_began_before();
    trace.assert_in_order();
    let mut logs = trace.parsed.events_of(EventType::UserLog);
    let end = logs.next().expect("it was logged").time();
    // One of them may leave all the work to the others.
    assert!(threads.iter().any(|name| !measured[*name].computed.is_zero()), "no thread computed anything");
    for name in threads {
        let time @ Time { computed, passed, ran, stood_in_line } = measured[*name];
        let shown = running(&trace, name, end);
        // The trace's clock and the kernel's need not agree to the last digit.
        let least = computed.mul_f64(0.999);
        let most = (ran + stood_in_line).max(passed + ran.saturating_sub(computed)).mul_f64(1.05) + TICK;
        assert!((least..=most).contains(&shown), "{name} is shown to run for {shown:?}: {time:?}");
    }
    check(test, &trace, &[]);
}

/// Runs threads that compute on messages of others, through channels of std.
fn channels(worked: &mut dyn FnMut()) {
    let (tx, rx) = mpsc::channel();
    let end = Arc::new(Barrier::new(3));
    let (send, receive) = mpsc::sync_channel::<usize>(4);
    let (send_on, receive_on) = mpsc::channel();
    let named = |name: &str| Builder::new().name(name.to_owned());
    let (theirs, tx_too) = (end.clone(), tx.clone());
    let first = named("first").spawn(move || {
        for number in receive {
            burn(Duration::from_micros(1000));
            send_on.send(number).unwrap();
        }
        drop(send_on);
        tx_too.send(()).unwrap();
        theirs.wait();
    });
    let theirs = end.clone();
    let second = named("second").spawn(move || {
        for _ in receive_on {
            burn(Duration::from_micros(1000));
        }
        tx.send(()).unwrap();
        theirs.wait();
    });
    for number in 0..100 {
        std::thread::sleep(Duration::from_micros(500));
        send.send(number).unwrap();
    }
    drop(send);
    rx.iter().take(2).for_each(drop);
    worked();
    end.wait();
    for thread in [first, second] {
        thread.unwrap().join().unwrap();
    }
}

/// Runs a pool of rayon that gets work now and then.
fn pool(worked: &mut dyn FnMut()) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).thread_name(|at| format!("pool {at}"));
    let pool = pool.build().unwrap();
    for _ in 0..20 {
        pool.install(|| (0..16).into_par_iter().for_each(|_| burn(Duration::from_micros(500))));
        std::thread::sleep(Duration::from_millis(5));
    }
    worked();
}

async fn serves(mut stream: tokio::net::TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).await.is_ok() {
        burn(Duration::from_micros(200));
        stream.write_all(&byte).await.unwrap();
    }
}

fn asks(server: SocketAddr) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_nodelay(true).unwrap();
    for _ in 0..200 {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        burn(Duration::from_micros(600));
    }
}

/// Runs a server on tokio, under load.
fn server(worked: &mut dyn FnMut()) {
    let number = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name_fn(move || format!("worker {}", number.fetch_add(1, Relaxed)))
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serves(stream));
        }
    });
    let (tx, rx) = mpsc::channel();
    let end = Arc::new(Barrier::new(4));
    let clients: Vec<_> = (0..3)
        .map(|at| {
            let (tx, end) = (tx.clone(), end.clone());
            let asks = move || {
                asks(address);
                tx.send(()).unwrap();
                end.wait();
            };
            Builder::new().name(format!("client {at}")).spawn(asks).unwrap()
        })
        .collect();
    rx.iter().take(3).for_each(drop);
    worked();
    end.wait();
    clients.into_iter().for_each(|client| client.join().unwrap());
    accepting.abort();
}

#[test]
fn threads_run_as_long_as_they_compute() {
    let test = "threads_run_as_long_as_they_compute";
    child::isolated_as(test, "channels", || compare(test, &["first", "second"], channels));
    child::isolated_as(test, "pool", || compare(test, &["pool 0", "pool 1"], pool));
    let threads = ["worker 0", "worker 1", "client 0", "client 1", "client 2"];
    child::isolated_as(test, "server", || compare(test, &threads, server));
}
