//! What a program sees of each dependency of rtprof: names of functions and tasks, locks, spans, answers over HTTP. It is
//! built with the least version that rtprof permits of each (ci/least-versions.py), and it fails if one does too little.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rtprof::task::{Instrument, JoinSet};
use rtprof::trace::{self, Format, Options};
use tokio::sync::Notify;
use tracing_subscriber::layer::SubscriberExt;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

fn main() {
    rtprof::set_mem_profile_rate(1);
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);
    let server = rtprof::http::serve("127.0.0.1:0").expect("a free port");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();

    let kept = keep();
    contend();
    runtime.block_on(join_tasks());
    runtime.spawn(wait_for_ever().instrument_named("stuck"));
    check_trace();

    let own = server.local_addr();
    let axum = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, rtprof::http::router()).await });
        address
    });
    for address in [own, axum] {
        expect(address, "heap?debug=1", "least_versions::keep");
        expect(address, "mutex?debug=1", "least_versions::unlock");
        expect(address, "goroutine?debug=2", "least_versions::wait_for_ever");
        expect(address, "heap?format=flamegraph", "least_versions::keep");
    }
    drop(kept);
    println!("works with the least versions");
}

#[inline(never)]
fn keep() -> Vec<u8> {
    black_box(vec![1; 100_000])
}

/// Two threads that want one lock, of lock_api over parking_lot's raw lock, until an unlock was late enough.
fn contend() {
    let lock = Arc::new(rtprof::sync::Mutex::new(0));
    until("contended unlock", || {
        let held = lock.lock();
        let waiting = thread::spawn({
            let lock = lock.clone();
            move || *lock.lock() += 1
        });
        thread::sleep(Duration::from_millis(1));
        unlock(held);
        waiting.join().unwrap();
        !rtprof::mutex_profile().is_empty()
    });
}

#[inline(never)]
fn unlock<T>(held: T) {
    drop(held);
}

/// tokio's sets of tasks have `join_all` only since 1.40.
async fn join_tasks() {
    let mut set = JoinSet::new();
    for number in 0..3 {
        set.spawn(async move { number });
    }
    let mut numbers = set.join_all().await;
    numbers.sort();
    assert_eq!(numbers, [0, 1, 2]);

    let mut set = JoinSet::new();
    set.spawn(async { panic!("this panic is expected") });
    let runtime = tokio::runtime::Handle::current();
    let joined = thread::spawn(move || {
        catch_unwind(AssertUnwindSafe(|| -> Vec<()> { runtime.block_on(set.join_all()) }))
    });
    let panic = tokio::task::spawn_blocking(|| joined.join().unwrap()).await.unwrap().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"this panic is expected"));
}

async fn wait_for_ever() {
    Notify::new().notified().await
}

/// The spans of the crate tracing are in a trace, which prost writes in one of the formats.
fn check_trace() {
    for format in [Format::V2, Format::Perfetto] {
        let (sink, written) = channel();
        trace::start_with(Sink(sink), Options { format, ..Options::default() }).unwrap();
        let subscriber = tracing_subscriber::registry().with(rtprof::tracing::layer());
        tracing::subscriber::with_default(subscriber, || tracing::info_span!("order of tea").in_scope(keep));
        trace::stop().unwrap();
        let written: Vec<u8> = written.iter().flatten().collect();
        let span = b"order of tea";
        assert!(written.windows(span.len()).any(|bytes| bytes == span), "no span in {format:?}");
    }
}

struct Sink(Sender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn expect(address: SocketAddr, profile: &str, text: &str) {
    let what = format!("{text} in {profile} of {address}");
    let mut answer = String::new();
    until(&what, || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /debug/pprof/{profile} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        answer.clear();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200") && answer.contains(text)
    });
}

/// Waits for a condition, and fails after a minute.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
