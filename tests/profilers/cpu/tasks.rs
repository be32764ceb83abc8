//! Samples in async tasks: their stacks end at the task, and carry its name and labels.

use std::collections::HashMap;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rtprof::pprof::{self, CpuSource};
use rtprof::task::{Instrument, do_with};
use test_support::child;
use test_support::processor::burn;

use super::work::{by, profiled, sum};

#[inline(never)]
fn works(time: Duration) {
    burn(time);
    std::hint::black_box("works");
}

async fn computes(time: Duration) {
    works(time);
}

/// Polls a task once, as an executor's own function.
#[inline(never)]
fn polls_once(task: impl Future<Output = ()>) {
    assert!(pin!(task).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    std::hint::black_box("polls_once");
}

#[test]
fn samples_have_the_name_and_labels_of_the_task() {
    child::isolated("samples_have_the_name_and_labels_of_the_task", || {
        const TIME: Duration = Duration::from_millis(50);
        let of = |name: &str| pprof::labels(&[("of", name)]);
        let ((), profile, _) = profiled(by(CpuSource::Auto, 1000), || {
            polls_once(computes(TIME).instrument_named("named"));
            polls_once(pprof::do_with(of("maker"), || computes(TIME).instrument()));
            polls_once(do_with(of("future"), computes(TIME)).instrument_named("both"));
            let taken = pprof::labels(&[("task", "the program's")]);
            polls_once(do_with(taken, computes(TIME)).instrument_named("not seen"));
            polls_once(async { computes(TIME).instrument_named("inner").await }.instrument_named("outer"));
            pprof::do_with(of("thread"), || polls_once(computes(TIME)));
        });
        let mut found: HashMap<(Option<&str>, Option<&str>), Vec<_>> = HashMap::new();
        let samples = profile.samples_of("tasks::works");
        for sample in &samples {
            let label = |key: &str| sample.labels.get(key).map(String::as_str);
            found.entry((label("task"), label("of"))).or_default().push(sample.clone());
        }
        let expected = [
            (Some("named"), None),
            (None, Some("maker")),
            (Some("both"), Some("future")),
            (Some("the program's"), None),
            (Some("inner"), None),
            (None, Some("thread")),
        ];
        assert_eq!(found.len(), expected.len(), "{:?}", found.keys());
        for key in expected {
            let (count, _) = sum(found[&key].iter());
            assert!((30..=80).contains(&count), "{key:?}: {count}");
            for sample in &found[&key] {
                let functions: Vec<_> = sample.frames.iter().map(|frame| frame.function.as_str()).collect();
                let outermost = functions.last().expect("a function");
                let is_threads = key == (None, Some("thread"));
                assert_eq!(sample.has("polls_once"), is_threads, "{functions:?}");
                assert_eq!(outermost.contains("tasks::"), !is_threads, "{functions:?}");
            }
        }
    });
}
