//! Tasks that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rtprof::task::Instrument;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};

pub fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().expect("there are threads")
}

/// Spawns tasks that wait for each other, and ends when they have. Counts those that have sent a number.
pub async fn churn(count: &AtomicU64) {
    let (send, mut receive) = mpsc::channel::<u64>(4);
    let turns = Arc::new(Semaphore::new(1));
    for number in 0..20 {
        let (send, turns) = (send.clone(), turns.clone());
        let inner = async move { turns.acquire().await.map(drop) }.instrument_named("inner");
        let task = async move {
            inner.await.expect("it is not closed");
            send.send(number).await.expect("it is received");
        };
        drop(tokio::spawn(task.instrument_named("churned")));
    }
    drop(send);
    while receive.recv().await.is_some() {
        count.fetch_add(1, Relaxed);
    }
}
