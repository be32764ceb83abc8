use std::time::Duration;

use crate::support::child;
use crate::trace_go;
use crate::trace_of::record;

#[test]
fn a_first_trace() {
    child::isolated("a_first_trace", || {
        let trace = record(|| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let (send, mut receive) = tokio::sync::mpsc::channel::<u32>(1);
                let receiver =
                    rtprof::task::spawn_named(
                        "receiver",
                        async move { while receive.recv().await.is_some() {} },
                    );
                let sender = rtprof::task::spawn_named("sender", async move {
                    for n in 0..5 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        send.send(n).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
                sender.await.unwrap();
                receiver.await.unwrap();
            });
        });
        for name in ["sender", "receiver"] {
            let g = trace.goroutine(name);
            for event in trace.story(g) {
                eprintln!("{name} {event:?}");
                for f in event.functions() {
                    eprintln!("        {f}");
                }
            }
        }
        trace_go::check("first", &trace, &[]);
    });
}
