//! `format=groups`: goroutines with equal stacks as one; the dump's filters; one stack for each place that awaits.

use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rtprof::pprof::{GoroutineFilter, Symbolization, lookup};
use rtprof::task::{Instrument, spawn_blocking, spawn_named};
use test_support::{child, until};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{Mutex, mpsc};
use tokio::time::sleep;

use super::states::find;

fn groups(filter: Option<GoroutineFilter>, from_program: bool) -> String {
    let mut snapshot = lookup("goroutine").expect("it is there").snapshot().expect("there is room");
    if let Some(filter) = filter {
        snapshot = snapshot.with_goroutines(filter);
    }
    if from_program {
        snapshot = snapshot.from_program();
    }
    let mut text = Vec::new();
    snapshot.write_groups(&mut text, Symbolization::Full).expect("memory can be written");
    String::from_utf8(text).expect("it is text")
}

async fn takes(lock: Arc<Mutex<u32>>) {
    *lock.lock().await += 1;
}

const TAKES: u32 = line!() - 3;

async fn blocks(on: std::sync::mpsc::Receiver<()>) {
    let _ = on.recv();
}

#[test]
fn equal_stacks_are_one_group() {
    child::isolated("equal_stacks_are_one_group", || {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let lock = Arc::new(Mutex::new(0));
        let held = lock.clone().try_lock_owned().expect("it is free");
        let _entered = runtime.enter();
        for _ in 0..12 {
            spawn_named("takes", takes(lock.clone()));
        }
        let (release, on) = channel();
        spawn_named("blocks", blocks(on));
        // Made in order to block.
        let (_waits, waits) = channel::<()>();
        spawn_blocking(move || waits.recv().is_ok());
        // It is polled all the time.
        spawn_named("ticks", async {
            loop {
                sleep(Duration::from_millis(1)).await;
            }
        });
        // Not followed.
        for _ in 0..30 {
            runtime.spawn(pending::<()>());
        }
        let all = || groups(None, true);
        let has_all = |text: &str| {
            text.contains("\n12 tasks \"takes\" [await]: goroutines ")
                && text.contains(", blocks its thread: goroutine ")
        };
        until("all wait", || has_all(&all()));
        let text = all();
        let place = format!("{}:{TAKES}\n", file!());
        let group = text.split("\n\n").find(|group| group.starts_with("12 tasks")).expect("it is there");
        let first = group.lines().nth(1).expect("a frame");
        assert!(first.contains("::groups::takes::") && format!("{first}\n").ends_with(&place), "{text}");
        assert!(group.lines().next().unwrap().ends_with(", .."), "ten of the numbers: {text}");
        // What blocks a worker comes first, the threads last.
        let heads = ["\n1 task \"blocks\" [", "\n12 tasks \"takes\" [", "\n1 thread \"main\" ["];
        let order = heads.map(|head| text.find(head));
        assert!(order.is_sorted() && order[0].is_some(), "{order:?} {text}");
        let counts = text.lines().next().expect("a summary");
        assert!(counts.contains(" goroutines: 15 tasks, "), "{text}");
        assert_eq!(text.matches("blocks its thread").count(), 1, "{text}");
        until("the number of tokio's tasks is told", || {
            all().contains("rtprof: tokio has 44 live tasks, and rtprof follows 15 tasks and futures")
        });
        // From the leaf on, it begins in tokio.
        let whole = groups(None, false);
        let group = whole.split("\n\n").find(|group| group.starts_with("12 tasks")).expect("it is there");
        assert!(group.lines().nth(1).unwrap().starts_with("\ttokio::"), "{whole}");

        // Filters.
        let mut filter = GoroutineFilter::default();
        filter.states = vec!["Await".to_owned()];
        let awaiting = groups(Some(filter.clone()), true);
        assert!(awaiting.contains("12 tasks \"takes\"") && !awaiting.contains("\"blocks\""), "{awaiting}");
        filter.states.clear();
        filter.show = Some(Arc::new(|name| name.contains("::groups::blocks")));
        let blocking = groups(Some(filter.clone()), true);
        assert!(blocking.lines().next().unwrap().ends_with("; 1 of them are shown"), "{blocking}");
        assert!(!blocking.contains("\"takes\"") && blocking.contains("1 task \"blocks\""), "{blocking}");
        let mut dump = Vec::new();
        let snapshot = lookup("goroutine").expect("it is there").snapshot().expect("there is room");
        snapshot.with_goroutines(filter).write_to(&mut dump, 2).expect("memory can be written");
        let dump = String::from_utf8(dump).expect("it is text");
        assert!(dump.starts_with("goroutine ") && dump.contains("task \"blocks\""), "{dump}");
        assert!(!dump.contains("task \"takes\""), "{dump}");
        drop((release, held));
    });
}

async fn accepts(listener: TcpListener) {
    loop {
        let _ = listener.accept().await;
    }
}

async fn selects(mut a: mpsc::Receiver<u32>, mut b: mpsc::Receiver<u32>) {
    loop {
        tokio::select! {
            _ = a.recv() => {}
            _ = b.recv() => {}
            () = sleep(Duration::from_secs(1000)) => {}
        }
    }
}

async fn first(mut a: mpsc::Receiver<u32>) {
    a.recv().await;
}

async fn second(mut a: mpsc::Receiver<u32>) {
    a.recv().await;
}

async fn selects_own(a: mpsc::Receiver<u32>, b: mpsc::Receiver<u32>) {
    tokio::select! {
        () = first(a) => {}
        () = second(b) => {}
    }
}

/// A future of a library may register a waker several times, and a `select!` polls each of its futures at one line: the dump
/// has a stack for each place in the program's code.
#[test]
fn a_place_that_awaits_is_there_once() {
    child::isolated("a_place_that_awaits_is_there_once", || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let channels: [_; 4] = std::array::from_fn(|_| mpsc::channel(1));
            let (senders, [a, b, c, d]) = {
                let (senders, receivers): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
                (senders, <[_; 4]>::try_from(receivers).expect("four"))
            };
            tokio::spawn(accepts(listener).instrument_named("accepts"));
            tokio::spawn(selects(a, b).instrument_named("selects"));
            tokio::spawn(selects_own(c, d).instrument_named("own"));
            let branches = |name: &str| super::dump::tasks().get(name).map(|task| task.branches.len());
            // The first look has them polled, and notes their stacks.
            super::dump::tasks();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            until("they await", || find("own").is_some());
            assert_eq!(
                (branches("accepts"), branches("selects"), branches("own")),
                (Some(0), Some(0), Some(1))
            );
            drop(senders);
        });
    });
}
