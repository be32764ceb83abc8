//! The part for spans of other tracers, each with a consumer for its records.
//!
//! Requests: `span WHOSE COUNT` (answers ns for a span, from begin to end, in the thread that makes it).

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrace::collector::{Config, Reporter, SpanRecord};
use fastrace::prelude::{LocalSpan, Span, SpanContext};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::serve::serve;
use tracing_subscriber::layer::SubscriberExt;

fn main() {
    let taken = ReceivedAmount::default();
    fastrace::set_reporter(taken.clone(), Config::default());
    puffin::set_scopes_on(true);
    let frames = taken.clone();
    let add = move |frame: Arc<puffin::FrameData>| frames.add(frame.meta().num_scopes as u64);
    puffin::GlobalProfiler::lock().add_sink(Box::new(add));
    let (layer, writer) = tracing_chrome::ChromeLayerBuilder::new().writer(taken.clone()).build();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .expect("there is no other subscriber");
    serve(|request| match request.word() {
        "span" => {
            let spans = match request.word() {
                "fastrace" => fastraces::<1000>,
                "fastrace-short" => fastraces::<10>,
                "puffin" => puffins,
                "tracing-chrome" => chromes,
                other => panic!("unknown tracer {other}"),
            };
            let count = request.number();
            spans(count / 8);
            let watch = Stopwatch::start();
            spans(count);
            let nanos = watch.nanos_each(count);
            // The next contender has the machine to itself.
            fastrace::flush();
            taken.settle();
            vec![nanos]
        }
        other => panic!("unknown request {other}"),
    });
    drop(writer);
}

/// The amount that the consumer has received.
#[derive(Clone, Default)]
struct ReceivedAmount(Arc<AtomicU64>);

impl ReceivedAmount {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Waits until no more data arrives.
    fn settle(&self) {
        let mut before = u64::MAX;
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now == before {
                break;
            }
            before = now;
            thread::sleep(Duration::from_millis(5));
        }
        assert!(before > 0, "nothing was recorded");
    }
}

impl Reporter for ReceivedAmount {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        self.add(spans.len() as u64);
    }
}

impl Write for ReceivedAmount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[inline(never)]
fn fastraces<const UNDER_ONE_ROOT: usize>(count: usize) {
    for _ in 0..count / UNDER_ONE_ROOT {
        let root = Span::root("root", SpanContext::random());
        let _parent = root.set_local_parent();
        for _ in 0..UNDER_ONE_ROOT {
            let _span = LocalSpan::enter_with_local_parent(black_box("step"));
        }
    }
}

#[inline(never)]
fn puffins(count: usize) {
    for _ in 0..count / 1000 {
        {
            // Scopes are passed on when the outermost one ends.
            puffin::profile_scope!("outer");
            for _ in 0..1000 {
                puffin::profile_scope!("step");
                black_box(());
            }
        }
        puffin::GlobalProfiler::lock().new_frame();
    }
}

#[inline(never)]
fn chromes(count: usize) {
    for _ in 0..count {
        let _span = tracing::info_span!("step").entered();
    }
}
