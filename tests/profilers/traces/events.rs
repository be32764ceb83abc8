//! Everything that a trace can show is in it: with the right goroutine, at the right place of the program, and with its
//! name.
//!
//! One program does each thing once (`test_support::trace_script`), and the trace is read back with the validator, which
//! knows the rules of Go's tools.

use std::collections::BTreeSet;
use std::time::Duration;

use rtprof::trace;
use rtprof_trace_check::{Event, EventType, NO_PROC};
use rtprof_trace_out::self_check;
use test_support::child;
use test_support::contention::{thread_id, wait_until_asleep};
use test_support::recording::{Kept, Trace, check_stack, has, record, until, valid};
use test_support::trace_script::{self, ALLOCATED, GOAL, WAITS, WAKER, on};

/// Returns the events of a goroutine that follow this one.
fn after<'a>(trace: &'a Trace, event: Event<'_>, goroutine: u64) -> Vec<Event<'a>> {
    let story = trace.story(goroutine);
    let at = story.iter().position(|of| of.offset() == event.offset()).expect("it is a part of the story");
    story[at + 1..].to_vec()
}

fn types(events: &[Event<'_>]) -> Vec<EventType> {
    events.iter().map(Event::event_type).collect()
}

#[test]
fn goroutines() {
    child::isolated("goroutines", || {
        let mut thread = 0;
        let trace = record(|| thread = trace_script::goroutines());
        trace.assert_whole();
        let (creator, created) = (trace.goroutine("creator"), trace.goroutine("created"));
        let story = trace.story(created);
        let expected = [
            EventType::GoCreate,
            EventType::GoStart,
            EventType::GoSched,
            EventType::GoStartLocal,
            EventType::GoEnd,
        ];
        assert_eq!(types(&story), expected, "{story:#?}");
        let [create, start, sched, again, end] = story.try_into().expect("there are five");
        assert_eq!(create.g(), creator, "{create:?}");
        check_stack(create, "creates", "creator");
        check_stack(sched, "yields", "created");
        let names: Vec<_> = create.start_stack().map(|frame| frame.function).collect();
        assert_eq!(names, ["created"], "a goroutine starts in its name");
        assert!([start, sched, again, end].iter().all(|event| event.p() == start.p()), "on one P");
        assert_ne!(start.p(), create.p(), "of its own");
        assert_eq!(start.argument("seq"), Some(1));

        // The goroutine's P runs while the goroutine does; in the first format only then.
        let of_p: Vec<_> = trace.parsed.events().filter(|event| event.p() == start.p()).collect();
        let at = of_p.iter().position(|event| event.offset() == start.offset()).expect("it is there");
        assert_eq!(of_p[at - 1].event_type(), EventType::ProcStart, "{of_p:#?}");
        assert_eq!(of_p[at - 1].argument("thread"), Some(thread as u64));
        let end = of_p.iter().position(|event| event.offset() == end.offset()).expect("it is there");
        assert_eq!(of_p[end + 1].event_type(), EventType::ProcStop, "{of_p:#?}");
    });
}

#[test]
fn waits() {
    child::isolated("waits", || {
        let trace = record(trace_script::waits);
        trace.assert_whole();
        trace.assert_in_order();
        let waker = trace.goroutine(WAKER);
        for wait in WAITS {
            let goroutine = trace.goroutine(wait.who);
            let block = trace.only(wait.who, wait.event);
            check_stack(block, wait.function, wait.who);
            let next = after(&trace, block, goroutine);
            match wait.waker {
                Some(function) => {
                    assert_eq!(types(&next[..2]), [EventType::GoUnblock, EventType::GoStart], "{next:#?}");
                    assert_eq!(next[0].g(), waker, "{}: {:?}", wait.who, next[0]);
                    check_stack(next[0], function, WAKER);
                }
                None if wait.event == EventType::GoSysCall => {
                    let expected = [EventType::GoSysBlock, EventType::GoSysExit, EventType::GoStartLocal];
                    assert_eq!(types(&next[..3]), expected, "{next:#?}");
                    assert_eq!(next[1].argument("ts"), Some(0), "at the event's own time");
                }
                None => {
                    let expected = [EventType::GoUnblockLocal, EventType::GoStartLocal];
                    assert_eq!(types(&next[..2]), expected, "{}: {next:#?}", wait.who);
                    // Unblocked by no goroutine, on its own P.
                    let by: Vec<_> = trace.parsed.events_of(EventType::GoUnblockLocal).collect();
                    let by = by.iter().find(|event| event.offset() == next[0].offset()).expect("it is there");
                    assert_eq!((by.g(), by.p()), (0, block.p()), "{}: {by:?}", wait.who);
                }
            }
            // The shortest wait lasts 2 ms; a minute is more than any test takes.
            let length = until(block, next[1]);
            let range = Duration::from_micros(1900)..Duration::from_secs(60);
            assert!(range.contains(&length), "{}: {length:?}", wait.who);
        }
    });
}

#[test]
fn heap() {
    child::isolated("heap", || {
        rtprof::set_heap_goal(GOAL / 3);
        let trace = record(trace_script::heap);
        trace.assert_whole();
        let values = |event_type| {
            let events = trace.parsed.events_of(event_type);
            events.map(|event| event.argument("mem").expect("it has one")).collect::<Vec<_>>()
        };
        assert_eq!(values(EventType::HeapGoal), [GOAL / 3, GOAL, 0], "what it was, and how it changed");
        let curve = values(EventType::HeapAlloc);
        let (low, high) = (curve[0], curve.iter().copied().max().expect("there are some"));
        let last = curve[curve.len() - 1];
        assert!(curve.len() >= 4, "the beginning, before, with, after: {curve:?}");
        let grown = high - low;
        // Every allocation is sampled; the rest of the process has a few hundred KiB at most.
        let range = ALLOCATED as u64..ALLOCATED as u64 + (1 << 20);
        assert!(range.contains(&grown), "{ALLOCATED} bytes were allocated: {curve:?}");
        assert!(last < high - ALLOCATED as u64 / 2, "and freed: {curve:?}");
        let goals = trace.by("allocator", EventType::HeapGoal);
        assert_eq!(goals.len(), 2, "the goroutine that has set it: {goals:?}");
    });
}

#[test]
fn tasks_and_logs() {
    child::isolated("tasks_and_logs", || {
        let trace = record(trace_script::annotations);
        let task = trace.parsed.events_of(EventType::UserTaskCreate).collect::<Vec<_>>();
        let [request, part] = task.try_into().expect("two tasks");
        assert_eq!((request.name(), part.name()), ("request", "part"));
        check_stack(request, "makes_task", "annotator");
        check_stack(part, "makes_child", "annotator");
        let id = |task: Event<'_>| task.argument("taskid").expect("it has one");
        assert_eq!((request.argument("pid"), part.argument("pid")), (Some(0), Some(id(request))));

        let ends: Vec<_> = trace.parsed.events_of(EventType::UserTaskEnd).collect();
        assert_eq!(ends.iter().map(|&end| id(end)).collect::<Vec<_>>(), [id(part), id(request)]);
        assert_eq!(ends[0].g(), trace.goroutine("helper"), "it ended where it was worked on");
        check_stack(ends[0], "ends_child", "helper");
        assert_eq!(ends[1].g(), trace.goroutine("annotator"));

        let logs: Vec<_> = trace.parsed.events_of(EventType::UserLog).collect();
        let [alone, helping] = logs.try_into().expect("two logs");
        assert_eq!((alone.name(), alone.message()), ("alone", "of no task"));
        assert_eq!((helping.name(), helping.message()), ("helping", "größer"));
        assert_eq!((alone.argument("id"), helping.argument("id")), (Some(0), Some(id(part))));
        check_stack(alone, "logs", "annotator");
        check_stack(helping, "logs", "helper");
    });
}

#[test]
fn regions() {
    child::isolated("regions", || {
        let trace = record(trace_script::annotations);
        let of = |name: &str| {
            let regions = trace.by(name, EventType::UserRegion).into_iter();
            let rx =
                |event: Event<'_>| (event.argument("mode").expect("it has one"), event.name().to_owned());
            regions.map(rx).collect::<Vec<_>>()
        };
        let (begin, end) = (|name: &str| (0, name.to_owned()), |name: &str| (1, name.to_owned()));
        let expected = [
            begin("outer"),
            begin("inner"),
            // An outer region that is dropped first ends the inner one too.
            end("inner"),
            end("outer"),
            // Never ended by its own goroutine.
            begin("foreign"),
            begin("after"),
            end("after"),
        ];
        assert_eq!(of("annotator"), expected);
        assert_eq!(of("helper"), [begin("help"), end("help")]);
        assert_eq!(of("foreigner"), [], "it has begun none");
        assert_eq!(trace.stats.foreign_region_ends, 1, "{:?}", trace.stats);
        assert_eq!(trace.stats.omitted_events, 1, "the end of `inner`, which was over: {:?}", trace.stats);

        let regions = trace.by("annotator", EventType::UserRegion);
        check_stack(regions[0], "begins_outer", "annotator");
        check_stack(regions[1], "begins_inner", "annotator");
        let tasks: Vec<_> = trace.parsed.events_of(EventType::UserTaskCreate).collect();
        let helping = trace.by("helper", EventType::UserRegion)[0];
        assert_eq!(helping.argument("taskid"), tasks[1].argument("taskid"), "of the task that was entered");
        // The task made last is the current one until it ends elsewhere; the goroutine does not learn which task is
        // current then.
        let end = regions.last().expect("there are some");
        assert!(until(regions[5], *end) >= Duration::from_micros(1900), "a region lasts");
    });
}

#[test]
fn heap_profile_cycles() {
    child::isolated("heap_profile_cycles", || {
        let trace = record(trace_script::heap_cycle);
        trace.assert_whole();
        let regions = trace.by("profiler", EventType::UserRegion);
        let modes: Vec<_> = regions.iter().map(|event| event.argument("mode")).collect();
        assert_eq!(modes, [Some(0), Some(1), Some(0), Some(1)], "{regions:?}");
        for region in regions.iter().step_by(2) {
            assert_eq!(region.name(), "heap profile cycle");
            check_stack(*region, "cycles", "profiler");
        }
        assert_eq!(trace.parsed.count(EventType::GcStart), 0, "it is no collection");
    });
}

/// A goroutine that waited, one that ran and one that was in a system call before the trace are in it from its first
/// moment, under their names.
#[test]
fn who_was_there_before() {
    child::isolated("who_was_there_before", || {
        let mutex = rtprof::sync::Mutex::new(());
        let kept = Kept::default();
        self_check::want_other_formats(true);
        let guard = mutex.lock();
        let mut stats = None;
        trace_script::pair(
            "blocked",
            || trace_script::locks(|| drop(mutex.lock())),
            || {
                trace::start(kept.clone()).expect("no other trace goes on");
                trace::log("started", "");
                trace_script::unlocks(|| drop(guard));
                on("later", || ());
                stats = Some(trace::stop().expect("a vector takes everything"));
            },
        );
        let trace = valid(kept.bytes(), stats.expect("it was stopped"));
        trace.assert_whole();
        let blocked = trace.goroutine("blocked");
        let story = types(&trace.story(blocked));
        let begins = [EventType::GoCreate, EventType::GoStartLocal, EventType::GoBlock, EventType::GoUnblock];
        assert_eq!(story[..4], begins, "{story:?}");
        let create = trace.story(blocked)[0];
        let starter = trace.parsed.events_of(EventType::UserLog).next().expect("there is one").g();
        assert_ne!(starter, 0);
        // The place of its creation is known, though nothing was recorded then. Only the first format shows it.
        let first = trace.in_first_format();
        let created = first.story(blocked)[0];
        assert!(has(created, "pair"), "{:#?}", created.functions());
        let unblock = trace.story(blocked)[3];
        assert_eq!(unblock.g(), starter);
        assert!(has(unblock, "unlocks"), "{unblock:?}: {:#?}", unblock.functions());
        assert!(until(create, unblock) < Duration::from_secs(60));
    });
}

/// The event types that have a source in a Rust program, and no others: a new source must add a test here.
#[test]
fn every_type() {
    const EXPECTED: &[EventType] = &[
        EventType::Gomaxprocs,
        EventType::ProcStart,
        EventType::ProcStop,
        EventType::GcStart,
        EventType::GcDone,
        EventType::StwStart,
        EventType::StwDone,
        EventType::GcSweepStart,
        EventType::GcSweepDone,
        EventType::GoCreate,
        EventType::GoStart,
        EventType::GoEnd,
        EventType::GoSched,
        EventType::GoSleep,
        EventType::GoBlock,
        EventType::GoUnblock,
        EventType::GoBlockSend,
        EventType::GoBlockRecv,
        EventType::GoBlockSelect,
        EventType::GoBlockSync,
        EventType::GoBlockCond,
        EventType::GoBlockNet,
        EventType::GoSysCall,
        EventType::GoSysExit,
        EventType::GoSysBlock,
        EventType::HeapAlloc,
        EventType::HeapGoal,
        EventType::GoStartLocal,
        EventType::GoUnblockLocal,
        EventType::GcMarkAssistStart,
        EventType::GcMarkAssistDone,
        EventType::UserTaskCreate,
        EventType::UserTaskEnd,
        EventType::UserRegion,
        EventType::UserLog,
    ];
    child::isolated("every_type", || {
        let (wake, woken) = rtprof::sync::mpsc::channel::<()>();
        let (tx, rx) = std::sync::mpsc::channel();
        let before = rtprof::thread::spawn(move || {
            tx.send(thread_id()).expect("the test listens");
            assert!(woken.recv().is_err(), "nothing is sent");
        });
        wait_until_asleep(rx.recv().expect("the thread has begun"));
        let trace = record(trace_script::everything);
        drop(wake);
        before.join().expect("the thread ends well");
        trace.assert_in_order();
        let seen: BTreeSet<_> = trace.parsed.events().map(|event| event.event_type()).collect();
        assert_eq!(seen, EXPECTED.iter().copied().collect());
        let first = trace.in_first_format().parsed;
        assert!(first.events_of(EventType::Gomaxprocs).all(|event| event.p() == NO_PROC));
        let first = first.events().next().expect("there are events").event_type();
        assert_eq!(first, EventType::Gomaxprocs, "Go leaves out the creations before it");
        let events = trace.parsed.events().len() as u64;
        assert!(events >= trace.stats.events, "{events} events, {:?}", trace.stats);
    });
}
