//! A service on tokio whose requests are tasks, and clients that measure its latency.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rtprof::task::Instrument;
use rtprof::trace;
use rtprof_benches::statistics::percentile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Client threads, each with one connection, and the time from one request to the next of each: 1,600 requests in a
/// second, which keep two workers busy for about a third of the time.
const CLIENTS: u32 = 8;
const INTERVAL: Duration = Duration::from_millis(5);

/// A word to be counted, and the channel for its number.
type Count = (u64, oneshot::Sender<u64>);

pub(crate) struct Service {
    address: SocketAddr,
}

impl Service {
    pub(crate) fn start(runtime: &Runtime) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (counter, counted) = mpsc::channel(8);
        runtime.spawn(count(counted).instrument_named("counter"));
        let shared = Arc::new(Shared { log: Mutex::default(), counter });
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(shared.clone(), stream).instrument_named("connection"));
            }
        });
        Self { address }
    }

    /// Lets clients send requests for `duration`. Returns the median and the 99th percentile of the latencies in µs,
    /// and their number.
    pub(crate) fn measure(&self, duration: Duration) -> [f64; 3] {
        let start = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let address = self.address;
                thread::spawn(move || requests(address, start + INTERVAL * client / CLIENTS, duration))
            })
            .collect();
        let latencies: Vec<f64> =
            clients.into_iter().flat_map(|client| client.join().expect("it does not panic")).collect();
        [percentile(&latencies, 50.0), percentile(&latencies, 99.0), latencies.len() as f64]
    }
}

struct Shared {
    log: Mutex<Vec<u64>>,
    counter: mpsc::Sender<Count>,
}

async fn connection(shared: Arc<Shared>, mut stream: tokio::net::TcpStream) {
    let mut number = [0; 8];
    while stream.read_exact(&mut number).await.is_ok() {
        let answer = answer(shared.clone(), u64::from_le_bytes(number)).instrument_named("request");
        let answer = tokio::spawn(answer).await.expect("it does not panic");
        stream.write_all(&answer.to_le_bytes()).await.expect("the client waits for it");
    }
}

/// Does about 0.1 ms of work: a lock, computation, and another task's answer.
async fn answer(shared: Arc<Shared>, number: u64) -> u64 {
    let _task = trace::Task::new("request");
    {
        let mut log = shared.log.lock().await;
        log.push(number);
        if log.len() > 1000 {
            log.clear();
        }
    }
    let words = trace::with_region("sort", || sorted(number));
    let (answer, answered) = oneshot::channel();
    shared.counter.send((words, answer)).await.expect("it is received");
    answered.await.expect("it is answered")
}

fn sorted(seed: u64) -> u64 {
    let mut words: Vec<String> =
        (0..400u64).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_string()).collect();
    words.sort_unstable();
    black_box(words).len() as u64
}

async fn count(mut words: mpsc::Receiver<Count>) {
    let mut all = 0;
    while let Some((words, answer)) = words.recv().await {
        all += words;
        answer.send(all).expect("the request waits for it");
    }
}

/// Sends requests at fixed times. Returns their latencies in µs, including the time that they wait for a core.
fn requests(address: SocketAddr, start: Instant, duration: Duration) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    stream.set_nodelay(true).expect("TCP");
    let mut latencies = Vec::new();
    for number in 1.. {
        let due = start + INTERVAL * number;
        if due > start + duration {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(&u64::from(number).to_le_bytes()).expect("it is read");
        stream.read_exact(&mut [0; 8]).expect("it is answered");
        latencies.push(due.elapsed().as_secs_f64() * 1e6);
    }
    latencies
}
