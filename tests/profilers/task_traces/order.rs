//! No effect is older than its cause: tasks of two runtimes send each other messages, and log the number of each
//! message before sending and after receiving it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use rtprof::task::Instrument;
use rtprof::trace;
use rtprof_trace_check::EventType;
use test_support::recording::{Trace, record};
use test_support::trace_go;
use test_support::{PATIENCE, child, rounds, stress};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tasks of each runtime, and messages in flight at a time.
const TASKS: usize = 8;
const MESSAGES: u64 = 12;
/// Messages in a trace, which make five events each.
fn limit() -> u64 {
    rounds(3_000, 20_000)
}

/// Receives messages and sends each on, to another task under another number.
async fn relay(
    mut receive: UnboundedReceiver<u64>,
    all: Arc<Vec<UnboundedSender<u64>>>,
    sent: Arc<AtomicU64>,
    limit: u64,
) {
    while let Some(number) = receive.recv().await {
        if number == u64::MAX {
            return;
        }
        trace::log("received", &number.to_string());
        let next = sent.fetch_add(1, Relaxed);
        if next >= limit {
            // No more messages are sent. Each task receives the end once.
            for other in all.iter() {
                let _ = other.send(u64::MAX);
            }
            return;
        }
        send(&all, next);
    }
}

fn send(all: &[UnboundedSender<u64>], number: u64) {
    trace::log("sent", &number.to_string());
    // Every task gets messages from every other task.
    let to = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // The receiving task may have ended.
    let _ = all[to as usize % all.len()].send(number);
}

fn relayed(runtimes: &[Runtime]) -> Trace {
    record(|| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..TASKS * runtimes.len()).map(|_| unbounded_channel()).unzip();
        let (senders, sent) = (Arc::new(senders), Arc::new(AtomicU64::new(MESSAGES)));
        let tasks: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(at, receive)| {
                let relay = relay(receive, senders.clone(), sent.clone(), limit());
                runtimes[at % runtimes.len()].spawn(relay.instrument_named("relay"))
            })
            .collect();
        (0..MESSAGES).for_each(|number| send(&senders, number));
        runtimes[0].block_on(async {
            for task in tasks {
                task.await.expect("it does not panic");
            }
        });
    })
}

/// Counts the messages that were received after they were sent, and checks the order in the file and by the times.
fn check_messages(trace: &Trace) -> usize {
    let (mut sent, mut received) = (HashMap::new(), 0);
    for log in trace.parsed.events_of(EventType::UserLog) {
        let number = log.message();
        match log.name() {
            "sent" => assert!(sent.insert(number, log.time()).is_none(), "{number} was sent twice"),
            _ => {
                let cause = sent.get(number);
                assert!(cause.is_some_and(|cause| *cause <= log.time()), "{log:?}: sent at {cause:?}");
                received += 1;
            }
        }
    }
    received
}

#[test]
fn no_message_arrives_before_it_was_sent() {
    child::isolated("no_message_arrives_before_it_was_sent", || {
        let runtimes = [2, 1].map(|threads| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads).build().expect("there are threads")
        });
        let (start, mut events, mut lifted, mut incomplete) = (Instant::now(), 0, 0, 0);
        let last = loop {
            let trace = relayed(&runtimes);
            trace.assert_in_order();
            // A thread loses events while the reader holds its lane and has lost its core; the loss is counted.
            if trace.stats.dropped_events == 0 {
                trace.assert_whole();
                let received = check_messages(&trace);
                assert!(received as u64 > limit() / 2, "{received} of {}", limit());
                events += trace.stats.events;
                lifted += trace.stats.lifted_events;
            } else {
                incomplete += 1;
            }
            if start.elapsed() >= stress() && events > 0 {
                break trace;
            }
            assert!(start.elapsed() < stress() + PATIENCE, "no trace without losses");
        };
        println!(
            "{events} events, {lifted} of them later than the clock said; {incomplete} traces with losses"
        );
        trace_go::check("task-order", &last, &[]);
    });
}
