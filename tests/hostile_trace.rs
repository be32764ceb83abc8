//! Traces while threads end in the middle of an event, processes fork, regions panic and signal handlers log.
#![cfg(all(feature = "pprof", target_os = "linux"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rtprof::sync::mpsc::sync_channel;
use rtprof::thread;
use rtprof::trace::{self, Task, TraceError, WaitKind};
use rtprof_trace_check::{EventType, Parsed};
use test_support::address_space::{limit_address_space, mapped};
use test_support::fork;
use test_support::recording;
use test_support::{Background, PATIENCE, child, rounds, stress, until};

/// An allocator that counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller passes a `layout` that is valid for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a pointer from `System` with its layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOC: rtprof::ProfAlloc<Counting> = rtprof::ProfAlloc::new(Counting);

/// Records a trace of `body`.
fn traced(body: impl FnOnce()) -> (Parsed, trace::Stats) {
    let trace = recording::record(body);
    (trace.parsed, trace.stats)
}

fn every_event(n: usize) {
    trace::with_region("region", || trace::log("category", "message"));
    let task = Task::new("task");
    trace::wait(WaitKind::Net, || ());
    trace::syscall(|| drop(task.child("child")));
    thread::yield_now();
    if n.is_multiple_of(64) {
        rtprof::collector::collect(|| ());
    }
}

#[test]
fn events_do_not_allocate() {
    child::isolated("events_do_not_allocate", || {
        let (parsed, _) = traced(|| {
            every_event(1);
            let before = ALLOCATIONS.get();
            // Enough for more than one buffer.
            for n in 1..20_000 {
                trace::with_region("region", || trace::log("category", "message"));
                let task = Task::new("task");
                trace::wait(WaitKind::Net, || ());
                trace::syscall(|| drop(task.child("child")));
                if n % 1000 == 0 {
                    rtprof::set_heap_goal(n);
                }
            }
            assert_eq!(ALLOCATIONS.get(), before);
        });
        assert!(parsed.count(EventType::UserLog) >= 20_000);
    });
}

/// A handler of the program that logs interrupts threads anywhere, even in the middle of an event.
#[test]
fn a_signal_handler_logs() {
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        trace::log("signal", "handled");
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    child::isolated("a_signal_handler_logs", || {
        // SAFETY: the handler only calls trace::log, which may be called in a handler.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        const SIGNALS: u64 = 1000;
        // At most some 20 MiB, which fit into the buffers: the result does not depend on the speed of the writer.
        let events = rounds(15_000, 30_000);
        let (parsed, stats) = traced(|| {
            let background = &Background::default();
            std::thread::scope(|s| {
                let _ends = background.ends_here();
                let workers: Vec<_> = (0..3)
                    .map(|_| {
                        let (send, receive) = std::sync::mpsc::channel();
                        s.spawn(move || {
                            // SAFETY: the call returns the thread's own handle.
                            send.send(unsafe { libc::pthread_self() }).expect("it listens");
                            (1..events).for_each(every_event);
                            // The thread goes on without events until the last signal is sent.
                            background.repeat(std::thread::yield_now);
                        });
                        receive.recv().expect("it has begun")
                    })
                    .collect();
                let started = Instant::now();
                while HANDLED.load(Ordering::Relaxed) < SIGNALS {
                    assert!(started.elapsed() < PATIENCE, "{SIGNALS} signals are not handled");
                    for &worker in &workers {
                        // SAFETY: the threads live until the scope ends.
                        unsafe { libc::pthread_kill(worker, libc::SIGUSR1) };
                    }
                    std::thread::yield_now();
                }
            });
        });
        let logged =
            parsed.events_of(EventType::UserLog).filter(|log| log.message() == "handled").count() as u64;
        let handled = HANDLED.load(Ordering::Relaxed);
        assert_eq!(stats.dropped_buffers, 0, "{stats:?}");
        // A handler that interrupts an event may find the lane for such events taken, by a thread that it has
        // interrupted.
        assert!(logged + stats.dropped_events >= handled, "{logged} of {handled}, {stats:?}");
        assert!(logged > handled / 2, "{logged} of {handled}, {stats:?}");
    });
}

/// Threads end by a raw system call, in a signal handler that interrupts them anywhere.
#[test]
fn threads_end_in_the_middle_of_an_event() {
    static ENDED: AtomicU64 = AtomicU64::new(0);
    static EVENTS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn end(_: libc::c_int) {
        ENDED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: ends this thread, which holds nothing that others wait for.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    extern "C" fn record(_: *mut libc::c_void) -> *mut libc::c_void {
        for n in 1.. {
            every_event(n);
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }
        std::ptr::null_mut()
    }
    child::isolated("threads_end_in_the_middle_of_an_event", || {
        // SAFETY: `end` makes one system call, which ends a thread that holds nothing that others wait for.
        unsafe { libc::signal(libc::SIGUSR1, end as *const () as libc::sighandler_t) };
        let started = Instant::now();
        let mut rounds = 0;
        while started.elapsed() < stress().min(Duration::from_secs(5)) || rounds < 3 {
            rounds += 1;
            let before = ENDED.load(Ordering::Relaxed);
            let (parsed, _) = traced(|| {
                for n in 0..20 {
                    let (mut thread, events) = (0, EVENTS.load(Ordering::Relaxed));
                    // SAFETY: starts a thread that runs until the signal ends it. Its memory is leaked.
                    unsafe {
                        libc::pthread_create(&raw mut thread, std::ptr::null(), record, std::ptr::null_mut());
                    }
                    until("its first event", || EVENTS.load(Ordering::Relaxed) > events);
                    std::thread::sleep(Duration::from_micros(137 * n));
                    // SAFETY: the thread lives, because only this signal ends it.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    until("its end", || ENDED.load(Ordering::Relaxed) > before + n);
                }
                every_event(1);
            });
            assert!(parsed.count(EventType::UserLog) > 20);
        }
        println!("{rounds} rounds");
    });
}

/// Threads begin and end without a pause, and record events in their last destructors.
#[test]
fn threads_die_while_traces_come_and_go() {
    struct Talks;
    impl Drop for Talks {
        fn drop(&mut self) {
            every_event(1);
        }
    }
    thread_local!(static LAST: Talks = const { Talks });
    child::isolated("threads_die_while_traces_come_and_go", || {
        let background = Background::default();
        std::thread::scope(|s| {
            let _ends = background.ends_here();
            for _ in 0..2 {
                s.spawn(|| {
                    background.repeat(|| {
                        let theirs = std::thread::spawn(|| LAST.with(|_| every_event(2)));
                        thread::spawn(|| LAST.with(|_| every_event(3))).join().expect("it ends well");
                        theirs.join().expect("it ends well");
                    });
                });
            }
            let (started, mut traces) = (Instant::now(), 0);
            while started.elapsed() < stress() || traces < 20 {
                traces += 1;
                traced(|| std::thread::sleep(Duration::from_millis(3)));
            }
        });
    });
}

/// A forked child records nothing, and its parent's trace is whole.
#[test]
fn fork_while_tracing() {
    fork::isolated("fork_while_tracing", "", || {
        let (parsed, _) = traced(|| {
            let background = Background::default();
            std::thread::scope(|s| {
                let _ends = background.ends_here();
                for _ in 0..2 {
                    s.spawn(|| {
                        let count = Cell::new(0);
                        background.repeat(|| {
                            count.set(count.get() + 1);
                            every_event(count.get());
                        });
                    });
                }
                let (started, mut forks) = (Instant::now(), 0);
                while started.elapsed() < stress() || forks < 10 {
                    let region = trace::start_region("over the fork");
                    fork::in_a_child("while tracing", || {
                        assert!(!trace::is_enabled());
                        drop(region);
                        trace::log("child", "nobody hears this");
                        every_event(64);
                        thread::spawn(|| every_event(1)).join().expect("it ends well");
                        let (send, receive) = sync_channel(0);
                        let sender = thread::spawn(move || send.send(7));
                        assert_eq!(receive.recv(), Ok(7));
                        sender.join().expect("it ends well").expect("it was received");
                        assert!(matches!(trace::stop(), Err(TraceError::NotStarted)));
                        assert!(matches!(trace::start(io::sink()), Err(TraceError::Forked)));
                    });
                    forks += 1;
                }
            });
        });
        assert!(parsed.events_of(EventType::UserLog).all(|log| log.name() != "child"));
        assert!(parsed.count(EventType::UserLog) > 0);
    });
}

/// A child of a parent that does not trace can record a trace, even if its parent recorded one before.
#[test]
fn a_child_traces_itself() {
    fork::isolated("a_child_traces_itself", "", || {
        for _ in 0..2 {
            fork::in_a_child("on its own", || {
                let (parsed, _) = traced(|| {
                    every_event(1);
                    thread::spawn(|| every_event(2)).join().expect("it ends well");
                });
                assert_eq!(parsed.count(EventType::UserLog), 2);
            });
            traced(|| every_event(1));
        }
    });
}

#[test]
fn a_panic_ends_a_region() {
    child::isolated("a_panic_ends_a_region", || {
        let (parsed, _) = traced(|| {
            for _ in 0..3 {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    trace::with_region("outer", || {
                        trace::with_region("panics", || {
                            let _task = Task::new("panics");
                            trace::syscall(|| {
                                trace::wait(WaitKind::Sync, || std::panic::resume_unwind(Box::new(())))
                            })
                        })
                    })
                }));
                assert!(caught.is_err());
                trace::with_region("after", || ());
            }
            let _ = thread::Builder::new()
                .name("dies".into())
                .spawn(|| {
                    let _region = trace::start_region("of a thread that panics");
                    std::panic::resume_unwind(Box::new(()))
                })
                .expect("a thread")
                .join();
        });
        let marks = |name: &str| {
            let regions = parsed.events_of(EventType::UserRegion).filter(|region| region.name() == name);
            regions.map(|region| region.argument("mode").expect("it has one")).collect::<Vec<_>>()
        };
        for name in ["outer", "panics", "after"] {
            assert_eq!(marks(name), [0, 1, 0, 1, 0, 1], "{name}");
        }
        assert_eq!(marks("of a thread that panics"), [0, 1]);
        assert_eq!(parsed.count(EventType::UserTaskEnd), 3);
    });
}

/// Neither memory for buffers nor a thread for the writer is available: the start fails, and the next trace works.
#[test]
fn a_trace_that_cannot_begin() {
    child::isolated("a_trace_that_cannot_begin", || {
        every_event(1);
        let before = limit_address_space(mapped() + (1 << 20));
        let error = trace::start(io::sink()).expect_err("there is no memory");
        let is_enabled = trace::is_enabled();
        every_event(1);
        limit_address_space(before);
        assert!(matches!(error, TraceError::NoMemory | TraceError::NoThread(_)), "{error}");
        assert!(!is_enabled);
        assert!(matches!(trace::stop(), Err(TraceError::NotStarted)));
        traced(|| every_event(1));
    });
}
