//! A server of tokio under load: each request is read, counted under a lock, and answered.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rtprof_benches::processor::used_by_all;
use rtprof_benches::statistics::percentile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

const CLIENTS: usize = 8;
const REQUEST: usize = 64;
const ANSWER: usize = 1024;

/// The count of requests by their first byte.
type Counts = Arc<Mutex<HashMap<u8, u64>>>;

/// The server, which runs until it is dropped.
pub(crate) struct Service {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Service {
    /// # Panics
    /// When no port is free, or no thread.
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        runtime.spawn(async move {
            let counts = Counts::default();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, counts.clone()));
            }
        });
        Self { address, _runtime: runtime }
    }

    /// Lets clients send one request after the other for `duration`. Returns the microseconds of processor time for one
    /// request, the median and the 99th percentile of the latency in microseconds, and the number of requests.
    ///
    /// # Panics
    /// When the server does not answer.
    pub(crate) fn measure(&self, duration: Duration) -> [f64; 4] {
        let is_over = AtomicBool::new(false);
        let used = used_by_all();
        let (address, is_over) = (self.address, &is_over);
        let latencies: Vec<f64> = scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|number| scope.spawn(move || ask(address, is_over, number as u8))).collect();
            sleep(duration);
            is_over.store(true, Ordering::Relaxed);
            clients.into_iter().flat_map(|client| client.join().expect("the server answers")).collect()
        });
        let used = used_by_all() - used;
        let requests = latencies.len() as f64;
        let [p50, p99] = [50.0, 99.0].map(|percent| percentile(&latencies, percent));
        [used.as_secs_f64() * 1e6 / requests, p50, p99, requests]
    }
}

async fn answer(mut stream: tokio::net::TcpStream, counts: Counts) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).await.is_ok() {
        let count = {
            let mut counts = counts.lock().expect("nobody panics with it");
            let count = counts.entry(request[0]).or_default();
            *count += 1;
            *count
        };
        let answer = vec![count as u8; ANSWER];
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Sends requests, and returns the latency of each in microseconds.
fn ask(address: SocketAddr, is_over: &AtomicBool, number: u8) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("sockets can");
    let (mut latencies, mut answer) = (vec![], [0; ANSWER]);
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        stream.write_all(&[number; REQUEST]).expect("it is sent");
        stream.read_exact(&mut answer).expect("it is answered");
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    latencies
}
