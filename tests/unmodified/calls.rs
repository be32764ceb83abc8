//! Calls that read, write or wait for files, sockets and processes: long calls in a trace and in the block profile.

use std::hint::black_box;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{Builder, scope, sleep};
use std::time::{Duration, Instant};

use rtprof::trace::{Format, Options};
use rtprof::{BlockKinds, set_block_profile_kinds};
use rtprof_trace_check::{Event, EventType};
use test_support::contention::{
    About, Moment, NONE, Seen, queue, record_everything, thread_id, wait_until_asleep,
};
use test_support::processor::burn;
use test_support::recording::{Trace, has, parse, record, start, valid};
use test_support::{PATIENCE, child, until};

use crate::scenes::{SCENES, Scene, connected, pipe, read_byte, stream, write_byte};

const HOLD: Duration = Duration::from_millis(10);

#[inline(never)]
fn waiter<T>(play: impl FnOnce() -> T) -> T {
    black_box("waiter");
    black_box(play())
}

/// Lets a thread wait in `wait`, until this thread calls `end` after a while. Returns how long the wait must appear.
fn scripted(wait: impl FnOnce() + Send, end: impl FnOnce()) -> About {
    let (began, ended, end) = scope(|scope| {
        let waiting = queue(scope, || waiter(wait));
        sleep(HOLD);
        let ended = Moment::of(end);
        waiting.thread.join().expect("the thread ends well");
        (waiting.began, ended, Moment::now())
    });
    About { least: ended.since(began).least, most: end.since(began).most }
}

/// Returns the events that make a goroutine wait, with `waiter` in their stacks.
fn waits(trace: &Trace) -> Vec<Event<'_>> {
    let blocks = [
        EventType::GoSysCall,
        EventType::GoBlockNet,
        EventType::GoBlockSync,
        EventType::GoBlock,
        EventType::GoSleep,
    ];
    let is_one = |event: &Event<'_>| blocks.contains(&event.event_type()) && has(*event, "waiter");
    trace.parsed.events().filter(is_one).collect()
}

/// Returns the event that ends a wait.
fn end_of<'a>(trace: &'a Trace, wait: Event<'_>) -> Event<'a> {
    let ends = [EventType::GoSysExit, EventType::GoUnblock, EventType::GoUnblockLocal];
    let mut later = trace.parsed.events().filter(|event| event.time() > wait.time());
    later
        .find(|event| event.target() == Some(wait.g()) && ends.contains(&event.event_type()))
        .expect("the wait was over")
}

/// Lets a thread wait in each scene.
pub(crate) fn play_all() {
    for (scene, ..) in SCENES {
        scene(&mut |wait, end| {
            scripted(wait, end);
        });
    }
}

/// Records a trace in which a thread waits in each scene.
pub(crate) fn recorded_calls() -> Trace {
    record(play_all)
}

#[test]
fn a_trace_shows_what_blocks() {
    child::isolated("a_trace_shows_what_blocks", || {
        for (at, (scene, expected, _)) in SCENES.into_iter().enumerate() {
            let mut lasted = About::default();
            let trace = record(|| scene(&mut |wait, end| lasted = scripted(wait, end)));
            trace.assert_whole();
            trace.assert_in_order();
            let waits = waits(&trace);
            let kinds: Vec<_> = waits.iter().map(|event| event.event_type()).collect();
            assert_eq!(kinds, [expected], "scene {at}: {waits:#?}");
            let time = end_of(&trace, waits[0]).time() - waits[0].time();
            lasted.check(&format!("scene {at}"), time as i64);
        }
    });
}

/// The block profile has the kinds that are set, and by default those of Go.
#[test]
fn the_block_profile_has_the_kinds_it_is_told() {
    child::isolated("the_block_profile_has_the_kinds_it_is_told", || {
        record_everything();
        assert_eq!(rtprof::block_profile_kinds(), BlockKinds::DEFAULT);
        let mut expected = About::default();
        let (mut count, mut was) = (0, BlockKinds::DEFAULT);
        for (at, (scene, _, kind)) in SCENES.into_iter().enumerate() {
            for kinds in [BlockKinds::DEFAULT, kind, BlockKinds::NONE, BlockKinds::ALL] {
                assert_eq!(set_block_profile_kinds(kinds), was);
                was = kinds;
                scene(&mut |wait, end| {
                    let lasted = scripted(wait, end);
                    if kinds.contains(kind) {
                        expected = expected + lasted;
                        count += 1;
                    }
                });
            }
            let seen = Seen::unmodified().blocked("waiter");
            expected.check(&format!("after scene {at}"), seen.nanos);
            assert_eq!(seen.count, count, "after scene {at}");
        }
        set_block_profile_kinds(BlockKinds::NONE);
        // Sleeps are a kind too.
        let seen = Seen::unmodified().blocked("");
        waiter(|| sleep(HOLD));
        assert_eq!(Seen::unmodified().blocked(""), seen);
        set_block_profile_kinds(BlockKinds::SLEEP);
        waiter(|| sleep(HOLD));
        // SAFETY: the call writes nothing.
        waiter(|| assert_eq!(unsafe { libc::poll(null_mut(), 0, 1) }, 0));
        assert_eq!(Seen::unmodified().blocked("").count, seen.count + 2);
        assert_ne!(Seen::unmodified().blocked("waiter"), NONE);
    });
}

/// A call that returns at once is no event, however often it is made.
#[test]
fn short_calls_are_no_events() {
    child::isolated("short_calls_are_no_events", || {
        let (client, server) = UnixStream::pair().expect("there are descriptors");
        let mut long = 0;
        let trace = record(|| {
            waiter(|| {
                for _ in 0..2000 {
                    let started = Instant::now();
                    write_byte(&server);
                    read_byte(&client);
                    let mut poll = libc::pollfd { fd: client.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                    // SAFETY: the call writes to a local.
                    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
                    // One of the calls may have been long, because its thread had no core.
                    long += usize::from(started.elapsed() >= Duration::from_micros(20)) * 3;
                }
            });
        });
        let waits = waits(&trace);
        assert!(waits.len() <= long, "{} of {long}: {:#?}", waits.len(), waits.first());
    });
}

/// A call on a non-blocking socket is never shown as a wait: if it takes long, it does its work.
#[test]
fn what_refuses_to_wait_does_not_wait() {
    child::isolated("what_refuses_to_wait_does_not_wait", || {
        let (client, server) = connected();
        client.set_nonblocking(true).expect("it is a socket");
        let mut bytes = vec![0_u8; 4 << 20];
        let trace = record(|| {
            for _ in 0..100 {
                // Not all of these calls lose their core for long.
                (&client).read(&mut [0]).expect_err("there is nothing to be read");
            }
            waiter(|| {
                let (started, mut long) = (Instant::now(), 0);
                // Twice the limit for long calls: hardly more than the call itself lies between the readings.
                while long < 20 {
                    assert!(started.elapsed() < PATIENCE, "nothing takes long");
                    let begun = Instant::now();
                    // SAFETY: the vector has this length.
                    let sent =
                        unsafe { libc::send(client.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
                    long += usize::from(begun.elapsed() > Duration::from_micros(40));
                    assert!(sent > 0, "there is room");
                    let sent = &mut bytes[..sent as usize];
                    (&server).read_exact(sent).expect("it was sent");
                }
            });
            stream(&mut |wait, end| {
                scripted(wait, end);
            });
        });
        // The waits of the other socket, which blocks.
        let is_read = |event: &Event<'_>| has(*event, "read_exact") || has(*event, "read_byte");
        let waits: Vec<_> = waits(&trace);
        let (reads, sends): (Vec<_>, Vec<_>) = waits.iter().partition(|event| is_read(event));
        let kinds = |events: &[&Event<'_>]| events.iter().map(|event| event.event_type()).collect::<Vec<_>>();
        assert!(kinds(&reads).iter().all(|&kind| kind == EventType::GoBlockNet) && !reads.is_empty());
        assert!(!sends.is_empty(), "{waits:#?}");
        // A thread may lose its core for so long that it appears to have waited; the profiler cannot distinguish this.
        let as_waits = kinds(&sends).iter().filter(|&&kind| kind != EventType::GoSysCall).count();
        let kept = |event: &&Event<'_>| {
            end_of(&trace, **event).time() - event.time() >= Duration::from_millis(1).as_nanos() as u64
        };
        let kept = sends.iter().filter(|event| kept(event)).count();
        assert!(as_waits <= kept, "{as_waits} of {}, {kept} of them for long", sends.len());
    });
}

/// Records a trace that ends while a thread of this name is in the scene's call.
pub(crate) fn ended_in(name: &str, scene: Scene) -> Trace {
    let mut trace = None;
    scene(&mut |wait, end| {
        scope(|scope| {
            trace = Some(record(|| {
                let (tx, rx) = mpsc::channel();
                let body = move || {
                    tx.send(thread_id()).unwrap();
                    wait();
                };
                let builder = Builder::new().name(name.into());
                builder.spawn_scoped(scope, body).expect("there is a thread to be had");
                wait_until_asleep(rx.recv().unwrap());
                sleep(HOLD);
            }));
            end();
        });
    });
    trace.expect("it was recorded")
}

/// A thread that is in a call when the trace ends is shown in this call since the call began.
#[test]
fn a_call_goes_on_at_the_end() {
    child::isolated("a_call_goes_on_at_the_end", || {
        let scenes: [(&str, Scene, EventType); 2] =
            [("reads", pipe, EventType::GoSysBlock), ("receives", stream, EventType::GoBlockNet)];
        for (name, scene, expected) in scenes {
            let trace = ended_in(name, scene);
            let story = trace.story(trace.goroutine(name));
            let last = story.iter().rposition(|event| event.event_type() == expected);
            let last = last.unwrap_or_else(|| panic!("{story:#?}"));
            assert_eq!(last, story.len() - 1, "nothing follows: {story:#?}");
            let end = trace.parsed.events().map(|event| event.time()).max().expect("there are events");
            assert!(end - story[last].time() >= HOLD.as_nanos() as u64, "{story:#?}");
        }
    });
}

fn is_start(event_type: EventType) -> bool {
    matches!(event_type, EventType::GoStart | EventType::GoStartLocal)
}

/// A thread that was in the kernel at one trace, and has run since, is not in the kernel for the next trace.
#[test]
fn who_came_back_between_traces_runs() {
    child::isolated("who_came_back_between_traces_runs", || {
        let (reads, writes) = std::io::pipe().expect("there are descriptors");
        let traces = scope(|scope| {
            let ((tx, rx), (stop, stopped)) = (mpsc::channel(), mpsc::channel::<()>());
            let body = move || {
                tx.send(thread_id()).unwrap();
                read_byte(reads);
                tx.send(0).unwrap();
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    burn(Duration::from_millis(1));
                }
            };
            let builder = Builder::new().name("computes".into());
            builder.spawn_scoped(scope, body).expect("there is a thread to be had");
            wait_until_asleep(rx.recv().unwrap());
            let in_kernel = record(|| sleep(HOLD));
            write_byte(&writes);
            rx.recv().unwrap();
            let running = record(|| sleep(HOLD));
            drop(stop);
            [in_kernel, running]
        });
        let last = |trace: &Trace| {
            trace.story(trace.goroutine("computes")).last().expect("it was introduced").event_type()
        };
        let [in_kernel, running] = traces.each_ref().map(last);
        assert_eq!(in_kernel, EventType::GoSysBlock);
        assert!(is_start(running), "{running:?}");
    });
}

/// A thread that was in a call when the trace began, and has computed since, runs.
#[test]
fn who_came_back_in_a_trace_runs() {
    child::isolated("who_came_back_in_a_trace_runs", || {
        let mut lasts = HOLD;
        for attempt in 0.. {
            let (reads, writes) = std::io::pipe().expect("there are descriptors");
            let (thread, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
            let name = format!("computes {attempt}");
            let trace = scope(|scope| {
                let body = || {
                    thread.store(thread_id(), Relaxed);
                    read_byte(reads);
                    // Work that calls no hook.
                    thread.store(0, Relaxed);
                    while !is_over.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                let builder = Builder::new().name(name.clone());
                builder.spawn_scoped(scope, body).expect("there is a thread to be had");
                until("it has begun", || thread.load(Relaxed) != 0);
                wait_until_asleep(thread.load(Relaxed));
                let trace = record(|| {
                    write_byte(&writes);
                    until("it has read", || thread.load(Relaxed) == 0);
                    sleep(lasts);
                });
                is_over.store(true, Relaxed);
                trace
            });
            let story = trace.story(trace.goroutine(&name));
            if is_start(story.last().expect("it was introduced").event_type()) {
                assert!(story.iter().any(|event| event.event_type() == EventType::GoSysExit), "{story:#?}");
                return;
            }
            assert!(lasts < PATIENCE, "it is in a system call for ever: {story:#?}");
            lasts *= 2;
        }
    });
}

/// A thread that waits for a socket while another one records events, generation after generation.
#[test]
fn calls_go_on_across_generations() {
    child::isolated("calls_go_on_across_generations", || {
        let (client, server) = connected();
        let kept = start(Options::default());
        let lasted = scripted(
            move || read_byte(&client),
            || {
                kept.until_written(2);
                write_byte(&server);
            },
        );
        let stats = rtprof::trace::stop().expect("a vector takes everything");
        let trace = valid(kept.bytes(), stats);
        trace.assert_whole();
        trace.assert_in_order();
        assert!(trace.parsed.generations().len() > 2);
        // The first format shows the wait with its stack: there, the past can be written later.
        let (_, first) =
            trace.others.iter().find(|(format, _)| *format == Format::V1).expect("it was kept too");
        let first = parse(first, "first format");
        let shown = first.events_of(EventType::GoBlockNet).find(|event| has(*event, "waiter"));
        let waiter = shown.expect("the wait is in the first format").g();
        // In the second one the stack came when the generation with its beginning had been written.
        let waits: Vec<_> =
            trace.parsed.events_of(EventType::GoBlockNet).filter(|event| event.g() == waiter).collect();
        assert_eq!((waits.len(), waits[0].stack().len()), (1, 0), "{waits:#?}");
        lasted.check("the wait", (end_of(&trace, waits[0]).time() - waits[0].time()) as i64);
    });
}

/// A call without a timeout to wait for is not recorded as a wait; a call that waits only for time is a sleep.
#[test]
fn polls_of_nothing_are_sleeps() {
    child::isolated("polls_of_nothing_are_sleeps", || {
        let trace = record(|| {
            waiter(|| {
                let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                // SAFETY: nothing is written.
                unsafe {
                    assert_eq!(libc::poll(null_mut(), 0, 1), 0);
                    assert_eq!(libc::ppoll(null_mut(), 0, &raw const millisecond, null()), 0);
                    let sets = null_mut();
                    assert_eq!(libc::pselect(0, sets, sets, sets, &raw const millisecond, null()), 0);
                }
            });
        });
        let kinds: Vec<_> = waits(&trace).iter().map(|event| event.event_type()).collect();
        assert_eq!(kinds, [EventType::GoSleep; 3]);
    });
}
