//! Models of the recorder: every interleaving of a few threads, checked by loom.

use loom::thread;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::primitive::Ordering;
use rtprof_runtime::task::Task;

use crate::buffer::Buffer;
use crate::lane::Lane;
use crate::record::{Record, RecordKind, Records};
use crate::recorder::{Patience, Recorder};

const PATIENT: Patience<'static> = Patience { own: 1, is_gone: &|_| false, is_over: &|| false };

fn model(bound: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(f);
}

/// Leaks a recorder, because loom's atomics belong to one execution; the leak ends with the test.
fn recorder() -> &'static Recorder {
    let recorder = Box::leak(Box::new(Recorder::new()));
    recorder.epoch.generation.store(1, Ordering::SeqCst);
    recorder
}

fn event(recorder: &'static Recorder, lane: &Lane, number: u64) -> bool {
    let recorded = recorder.with_writer(lane, |writer| {
        let is_lost = writer.count_if_lost();
        writer.write(RecordKind::HeapAlloc, writer.now(), [number]);
        !is_lost
    });
    recorded == Some(true)
}

/// Does what a drain does at a cut. Returns the buffers that the drain then owns.
fn cut(recorder: &Recorder, from: u32, is_last: bool) -> Vec<&'static Buffer> {
    let next = recorder.advance(from, is_last).unwrap();
    assert!(recorder.collect(next, &PATIENT));
    let mut buffers = Vec::new();
    recorder.full.take_all(&mut buffers);
    buffers
}

/// Returns the generation and the records of a buffer.
fn read(buffer: &Buffer) -> (u32, Vec<Record<'_>>) {
    buffer.body.with_mut(|body| {
        // SAFETY: the buffer is out of the queue; loom checks that no other thread uses it.
        let body = unsafe { &*body };
        let records = Records::new(body.base, body.records()).map(|(_, record)| record).collect();
        (body.generation, records)
    })
}

fn numbers(records: &[Record<'_>]) -> Vec<u64> {
    let number = |record: &Record<'_>| match record {
        Record::HeapAlloc { bytes } => *bytes,
        other => panic!("{other:?} was never written"),
    };
    records.iter().map(number).collect()
}

/// A thread records while the drain cuts and then stops: each record is read once, in order, from a buffer that the
/// thread does not touch any more.
#[test]
fn loom_a_buffer_is_handed_over_whole() {
    model(3, || {
        let recorder = recorder();
        let lane = recorder.open_lane(7, 7).unwrap();
        let writer = thread::spawn(move || (1..=2).filter(|&n| event(recorder, lane, n)).collect::<Vec<_>>());
        let mut found = Vec::new();
        for (generation, is_last) in [(1, false), (2, true)] {
            for buffer in cut(recorder, generation, is_last) {
                let (of, records) = read(buffer);
                assert!(of == generation || !is_last && of == 2, "a buffer of the past");
                found.extend(numbers(&records));
                recorder.buffers.give_back(buffer);
            }
        }
        let recorded = writer.join().unwrap();
        assert_eq!(found, recorded);
        assert!(lane.buffer.load(Ordering::Relaxed).is_null(), "a buffer was left behind");
    });
}

/// A thread ends while the drain stops: its last buffer comes out once.
#[test]
fn loom_a_lane_is_closed_while_the_reader_stops() {
    model(3, || {
        let recorder = recorder();
        let lane = recorder.open_lane(7, 7).unwrap();
        let writer = thread::spawn(move || {
            let recorded = event(recorder, lane, 1);
            recorder.close_lane(lane, 7, &PATIENT);
            recorded
        });
        let mut buffers = cut(recorder, 1, true);
        let recorded = writer.join().unwrap();
        recorder.full.take_all(&mut buffers);
        let found: Vec<u64> = buffers.iter().flat_map(|buffer| numbers(&read(buffer).1)).collect();
        assert_eq!(found, if recorded { vec![1] } else { vec![] });
    });
}

/// Two threads use the shared lane while the drain stops.
#[test]
fn loom_the_shared_lane_is_one_thread_s_at_a_time() {
    model(2, || {
        let recorder = recorder();
        let record = move |number| {
            let recorded = recorder.with_shared_writer(number as u32, |writer| {
                writer.write(RecordKind::HeapAlloc, writer.now(), [number]);
            });
            u64::from(recorded.is_some())
        };
        let other = thread::spawn(move || record(1));
        let mine = record(2);
        let mut buffers = cut(recorder, 1, true);
        let recorded = mine + other.join().unwrap();
        recorder.full.take_all(&mut buffers);
        let found: usize = buffers.iter().map(|buffer| read(buffer).1.len()).sum();
        assert_eq!(found as u64, recorded);
    });
}

/// A goroutine blocks, another wakes it, and the drain cuts at the same time: the wake is never in an earlier
/// generation than the block, their numbers are the true order, and the goroutine is declared once in each generation,
/// before any other record that concerns it there.
#[test]
fn loom_an_effect_is_never_in_an_earlier_generation() {
    model(3, || {
        let recorder = recorder();
        let goroutine: &'static Goroutine = Box::leak(Box::new(Goroutine::default()));
        let lanes = [1, 2].map(|id| recorder.open_lane(id, id as u32).unwrap());
        let waker = thread::spawn(move || {
            // Does nothing if the wake comes before the block.
            let is_waiting = |state| matches!(state, State::Waiting(_));
            recorder.with_writer(lanes[1], |writer| writer.unblock(goroutine, 0, &is_waiting)).unwrap();
        });
        let blocker = thread::spawn(move || {
            let waiting = State::Waiting(WaitReason::Park);
            let recorded = recorder.with_writer(lanes[0], |writer| {
                let tick = writer.leave_running(goroutine, waiting);
                writer.write(RecordKind::Block, tick, [WaitReason::Park as u64, 0]);
            });
            recorded.unwrap();
        });
        let mut buffers = cut(recorder, 1, false);
        blocker.join().unwrap();
        waker.join().unwrap();
        buffers.extend(cut(recorder, 2, true));

        let (mut blocked, mut unblocked) = (0, None);
        let mut declared = Vec::new();
        for buffer in buffers {
            let (generation, records) = read(buffer);
            for record in records {
                match record {
                    Record::Status(status) => declared.push((generation, status.number)),
                    Record::Block { .. } => blocked = generation,
                    Record::Unblock { number, .. } => {
                        assert_eq!(number, 2);
                        unblocked = Some(generation);
                    }
                    other => panic!("{other:?} was never written"),
                }
            }
        }
        assert!(blocked != 0 && unblocked.is_none_or(|of| blocked <= of), "{blocked}, then {unblocked:?}");
        declared.sort_unstable();
        let mut expected = vec![(blocked, 0)];
        expected.extend(unblocked.filter(|&of| of != blocked).map(|of| (of, 1)));
        assert_eq!(declared, expected);
        let end = if unblocked.is_some() { State::Runnable } else { State::Waiting(WaitReason::Park) };
        assert_eq!(goroutine.state().state(), end);
    });
}

/// A task is polled while another thread wakes it and the drain cuts: it is declared once in each generation, the
/// changes are numbered in their true order, and no wake is lost.
#[test]
fn loom_a_task_is_woken_while_it_is_polled() {
    model(2, || {
        let recorder = recorder();
        let task: &'static Task = Box::leak(Box::new(Task::of_model(9)));
        let lanes = [1, 2].map(|id| recorder.open_lane(id, id as u32).unwrap());
        let waker = thread::spawn(move || {
            let was_polled = task.traced().mark() != 0;
            recorder.with_writer(lanes[1], |writer| writer.wake_task(task, |_| 0)).unwrap();
            was_polled
        });
        let poller = thread::spawn(move || {
            recorder.with_writer(lanes[0], |writer| writer.begin_poll(task)).unwrap();
            recorder.with_writer(lanes[0], |writer| writer.end_poll(task)).unwrap();
        });
        let mut buffers = cut(recorder, 1, false);
        poller.join().unwrap();
        let is_woken = waker.join().unwrap();
        buffers.extend(cut(recorder, 2, true));

        let (mut changes, mut declared) = (Vec::new(), Vec::new());
        for buffer in buffers {
            let (generation, records) = read(buffer);
            for record in records {
                match record {
                    Record::Status(status) => declared.push((generation, status.number)),
                    Record::Poll { number, .. } => changes.push((number, generation, "poll")),
                    Record::Await { number, .. } => changes.push((number, generation, "await")),
                    Record::Reschedule { number, .. } => changes.push((number, generation, "reschedule")),
                    Record::Unblock { number, .. } => changes.push((number, generation, "unblock")),
                    other => panic!("{other:?} was never written"),
                }
            }
        }
        changes.sort_unstable();
        let kinds: Vec<_> = changes.iter().map(|&(_, _, kind)| kind).collect();
        let expected: [&[&str]; 3] =
            [&["poll", "await"], &["poll", "reschedule"], &["poll", "await", "unblock"]];
        assert!(expected.contains(&&*kinds), "{kinds:?}");
        assert!(changes.iter().zip(1..).all(|(change, number)| change.0 == number), "{changes:?}");
        assert!(changes.is_sorted_by_key(|&(_, generation, _)| generation), "{changes:?}");
        // A status has the number of the last change before its generation.
        declared.sort_unstable();
        let of = |generation| changes.iter().filter(move |change| change.1 < generation).count() as u64;
        let mut generations: Vec<_> = changes.iter().map(|change| change.1).collect();
        generations.dedup();
        assert_eq!(declared, generations.iter().map(|&of_| (of_, of(of_))).collect::<Vec<_>>());
        let can_run = task.traced().state() == State::Runnable;
        assert_eq!(can_run, kinds.last() != Some(&"await"));
        assert!(can_run || !is_woken, "the wake is lost");
    });
}
