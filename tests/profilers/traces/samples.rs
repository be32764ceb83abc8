//! CPU samples in a trace.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use rtprof::pprof::{self, CpuProfileError, CpuProfileOptions, CpuSource};
use rtprof::thread;
use rtprof::trace::{self, Options, TraceError};
use rtprof_trace_check::{Event, EventType, NO_PROC};
use test_support::processor::burn;
use test_support::profile::Profile;
use test_support::recording::{Kept, Trace, assert_works, has, record, record_with};
use test_support::signals::is_sampled;
use test_support::trace_go::{Reading, check, check_events, readings};
use test_support::trace_script;
use test_support::{child, descriptors, stress, until};

/// Returns the options of a trace with samples.
fn sampled(cpu_hz: u32) -> Options {
    Options { cpu_hz, ..Options::default() }
}

/// Runs `f` on a thread of this name.
fn in_thread<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new().name(name.into()).spawn(f);
    thread.expect("a thread").join().expect("it ends well")
}

/// Returns the samples whose stack contains this function.
fn samples_in<'a>(trace: &'a Trace, function: &str) -> Vec<Event<'a>> {
    trace.parsed.events_of(EventType::CpuSample).filter(|sample| has(*sample, function)).collect()
}

const TIME: Duration = Duration::from_millis(100);

// The bodies of these three differ, because the compiler merges functions with equal bodies.
#[inline(never)]
fn before() {
    black_box("before");
    burn(TIME);
}

#[inline(never)]
fn during() {
    black_box("during");
    burn(TIME);
}

#[inline(never)]
fn after() {
    black_box("after");
    burn(TIME);
}

/// Takes the CPU profile of `work`.
fn profiled(options: CpuProfileOptions, work: impl FnOnce()) -> Profile {
    let bytes = Kept::default();
    pprof::start_cpu_profile_with(bytes.clone(), options).expect("it starts");
    work();
    pprof::stop_cpu_profile().expect("it stops");
    Profile::read(&bytes.bytes())
}

/// Returns the number of samples of a function in a profile.
fn count_in(profile: &Profile, function: &str) -> i64 {
    profile.samples_of(function).iter().map(|sample| sample.values[0]).sum()
}

/// The trace has every sample of the profile, on the lane of the thread, with every source of samples.
#[test]
fn what_a_profile_has_the_trace_has() {
    for source in [CpuSource::Perf, CpuSource::Timers] {
        child::isolated_as("what_a_profile_has_the_trace_has", &format!("{source:?}"), || {
            let options = CpuProfileOptions { hz: 1000, source, ..CpuProfileOptions::default() };
            let mut profile = None;
            let trace = record(|| {
                profile = Some(profiled(options, || in_thread("worker", during)));
            });
            trace.assert_whole();
            let profile = profile.expect("it was taken");
            let samples = samples_in(&trace, "during");
            assert!(!samples.is_empty(), "of 100 ms");
            assert_eq!(samples.len() as i64, count_in(&profile, "samples::during"));
            // Not the only one of its name, if a sample has found the thread before it began its goroutine.
            let worker = samples[0].argument("g").expect("it has a goroutine");
            assert!(trace.parsed.goroutines_named("worker").any(|named| named == worker));
            let story = trace.story(worker);
            let began = story.iter().find(|event| event.event_type() == EventType::GoStart).expect("it ran");
            for sample in samples {
                assert_eq!((sample.argument("g"), sample.argument("p")), (Some(worker), Some(began.p())));
                assert_eq!(sample.functions().last(), Some(&"worker"));
                assert!(sample.time() >= began.time());
            }
            check("what_a_profile_has_the_trace_has", &trace, &[]);
        });
    }
}

/// A thread that is unknown to the profiler has a goroutine from its first sample on, which is not shown as running all
/// the time, since its waits are unknown.
#[test]
fn a_thread_that_no_hook_has_seen_has_a_lane() {
    extern "C" fn start(_: *mut libc::c_void) -> *mut libc::c_void {
        during();
        std::ptr::null_mut()
    }
    child::isolated("a_thread_that_no_hook_has_seen_has_a_lane", || {
        let trace = record_with(sampled(1000), || {
            // SAFETY: starts a thread of the C library, which is joined.
            unsafe {
                let mut thread = std::mem::zeroed();
                let none = std::ptr::null_mut();
                assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), start, none), 0);
                libc::pthread_setname_np(thread, c"of libc".as_ptr());
                assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
            }
        });
        trace.assert_whole();
        let (samples, own) = (samples_in(&trace, "during"), trace.goroutine("of libc"));
        assert!(!samples.is_empty(), "of 100 ms");
        for sample in samples {
            assert_eq!(sample.argument("g"), Some(own));
            assert_ne!(sample.argument("p"), Some(NO_PROC));
            assert_eq!(sample.functions().last(), Some(&"of libc"));
        }
        use EventType::{
            CpuSample, GoCreate, GoEnd, GoStart, GoStartLocal, GoSysBlock, GoSysCall, GoSysExit,
        };
        let story = trace.story(own);
        let changes = story.iter().map(|event| event.event_type()).filter(|kind| *kind != CpuSample);
        let changes: Vec<_> = changes.map(|kind| if kind == GoStartLocal { GoStart } else { kind }).collect();
        let introduced = [GoCreate, GoStart, GoSysCall, GoSysBlock];
        assert_eq!(changes, [&introduced[..], &[GoSysExit, GoStart, GoEnd]].concat(), "{story:?}");
        let first = story.iter().position(|event| event.event_type() == CpuSample);
        assert_eq!(first, Some(introduced.len()), "all samples come after it: {story:?}");
        check("a_thread_that_no_hook_has_seen_has_a_lane", &trace, &[]);
    });
}

/// A thread that std has started has its place in the trace from its first event on.
#[test]
fn a_thread_of_std_with_an_event_has_a_lane() {
    child::isolated("a_thread_of_std_with_an_event_has_a_lane", || {
        let trace = record_with(sampled(1000), || {
            let work = || {
                trace::log("of", "std");
                during();
            };
            std::thread::Builder::new().name("of std".into()).spawn(work).unwrap().join().unwrap();
        });
        let (samples, own) = (samples_in(&trace, "during"), trace.goroutine("of std"));
        assert!(!samples.is_empty(), "of 100 ms");
        for sample in samples {
            assert_eq!(sample.argument("g"), Some(own));
            assert_ne!(sample.argument("p"), Some(NO_PROC));
        }
    });
}

/// A profile that is started during a trace gets all samples, and so does the trace; afterwards the trace's own samples
/// continue.
#[test]
fn a_profile_takes_the_place_of_the_traces_own_samples() {
    child::isolated("a_profile_takes_the_place_of_the_traces_own_samples", || {
        let mut profile = None;
        let trace = record_with(sampled(500), || {
            before();
            let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
            profile = Some(profiled(options, during));
            // No profile that is still running prevents the next one.
            profiled(CpuProfileOptions::default(), || ());
            until("the trace samples again", is_sampled);
            after();
        });
        until("the trace samples no more", || !is_sampled());
        let profile = profile.expect("it was taken");
        assert_eq!(profile.period, 1_000_000);
        assert_eq!(samples_in(&trace, "during").len() as i64, count_in(&profile, "samples::during"));
        for function in ["before", "during", "after"] {
            assert!(!samples_in(&trace, function).is_empty(), "none of 100 ms in {function}");
            assert_eq!(count_in(&profile, function) > 0, function == "during", "{function}");
        }
        check("a_profile_takes_the_place_of_the_traces_own_samples", &trace, &[]);
    });
}

/// A profile that was started before the trace stays unchanged.
#[test]
fn a_trace_takes_nothing_from_a_profile() {
    child::isolated("a_trace_takes_nothing_from_a_profile", || {
        let mut trace = None;
        let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
        let profile = profiled(options, || {
            before();
            trace = Some(record_with(sampled(100), during));
            after();
        });
        let trace = trace.expect("it was recorded");
        assert_eq!(samples_in(&trace, "during").len() as i64, count_in(&profile, "samples::during"));
        for function in ["before", "during", "after"] {
            assert!(count_in(&profile, function) > 0, "none of 100 ms in {function}");
        }
    });
}

/// While other threads record, begin and end all the time, samples interrupt events of every kind.
#[test]
fn samples_between_all_kinds_of_events() {
    child::isolated("samples_between_all_kinds_of_events", || {
        let trace = record_with(sampled(10_000), || {
            let started = Instant::now();
            while started.elapsed() < stress() {
                trace_script::everything();
                thread::scope(|scope| {
                    for _ in 0..20 {
                        scope.spawn(|| (0..200).for_each(|_| trace::log("short", "life")));
                    }
                });
            }
        });
        trace.assert_in_order();
        let samples = trace.parsed.count(EventType::CpuSample);
        let on_lanes =
            trace.parsed.events_of(EventType::CpuSample).filter(|it| it.argument("p") != Some(NO_PROC));
        let on_lanes = on_lanes.count();
        assert!(on_lanes > 0, "{samples}");
        println!("{samples} samples, {on_lanes} on lanes, {:?}", trace.stats);
        for Reading { go, path, parsed, .. } in readings("samples_between_all_kinds_of_events", &trace) {
            check_events(&go, &path, &parsed);
        }
    });
}

#[test]
fn samples_that_cannot_be_are_refused() {
    child::isolated("samples_that_cannot_be_are_refused", || {
        let open = descriptors::open();
        for hz in [10_001, u32::MAX] {
            let error = trace::start_with(io::sink(), sampled(hz)).unwrap_err();
            let is_rate =
                |error: &CpuProfileError| matches!(error, CpuProfileError::InvalidRate(rate) if *rate == hz);
            assert!(matches!(&error, TraceError::CpuSamples(error) if is_rate(error)), "{error:?}");
            assert!(error.to_string().contains("choose a cpu_hz from 1 to 10000"), "{error}");
        }
        rtprof::set_thread_signals(false);
        let error = trace::start_with(io::sink(), sampled(100)).unwrap_err();
        assert!(matches!(error, TraceError::CpuSamples(CpuProfileError::SignalsOff)), "{error:?}");
        rtprof::set_thread_signals(true);
        assert!(!trace::is_enabled() && !is_sampled());
        assert_eq!(descriptors::open(), open);
        assert_works();
        for hz in [1, 10_000] {
            record_with(sampled(hz), || ());
        }
    });
}

#[inline(never)]
fn samples_itself() {
    // The address of any function serves; a frame belongs to the instruction before its address.
    let frames = [samples_itself as *const () as usize + 5, main_loop as *const () as usize + 5];
    rtprof_tracer::cpu_sample(black_box(&frames), 2);
}

#[inline(never)]
fn main_loop(samples: usize) {
    for n in 0..samples {
        black_box(n);
        samples_itself();
    }
}

#[test]
fn samples_of_the_processor_are_of_their_goroutine() {
    child::isolated("samples_of_the_processor_are_of_their_goroutine", || {
        const SAMPLES: usize = 5_000;
        let trace = record(|| in_thread("sampled", || main_loop(SAMPLES)));
        let (parsed, sampled) = (&trace.parsed, trace.goroutine("sampled"));
        let samples: Vec<_> = parsed.events_of(EventType::CpuSample).collect();
        assert_eq!(samples.len(), 2 * SAMPLES, "each is of two periods");
        for sample in &samples {
            assert_eq!(sample.argument("g"), Some(sampled));
            assert!(sample.argument("p").is_some_and(|p| p != 0 && p != NO_PROC));
            // Another function may be inlined into this one at the second address.
            let functions = sample.functions();
            assert!(functions[0].ends_with("::samples_itself"), "{functions:?}");
            assert!(functions.iter().any(|function| function.ends_with("::main_loop")), "{functions:?}");
            assert_eq!(functions.last(), Some(&"sampled"));
        }
        assert!(samples.is_sorted_by_key(|sample| sample.time()));
    });
}
