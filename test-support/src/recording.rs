//! Recording and reading of traces in tests. Each test is a separate process, because a process has one trace at a
//! time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rtprof::trace::{self, Format, Options, Stats};
use rtprof_trace_check::{Event, EventType, Parsed, perfetto};
use rtprof_trace_out::self_check;

use crate::{PATIENCE, folder};

/// A writer whose bytes can be read through a clone.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// Returns when `generations` more have been written since this call, a second each. The trace must be in the second
    /// format.
    #[track_caller]
    pub fn until_written(&self, generations: usize) {
        let (mut length, mut written) = (0, 0);
        let mut written = || {
            let bytes = self.0.lock().expect("nobody panics with it");
            if bytes.len() > length {
                length = bytes.len();
                // The file's header may not be complete yet.
                let complete = Parsed::read_complete(&bytes).ok();
                written = complete.map_or(0, |(trace, _)| trace.generations().len());
            }
            written
        };
        let before = written();
        crate::until("generations are written", || written() >= before + generations);
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A trace that was recorded and found valid.
pub struct Trace {
    pub bytes: Vec<u8>,
    pub stats: Stats,
    pub parsed: Parsed,
    /// The same trace in the other formats; none if it was not started by [`start`].
    pub others: Vec<(Format, Vec<u8>)>,
}

/// Records a trace of `script`.
#[track_caller]
pub fn record(script: impl FnOnce()) -> Trace {
    record_with(Options::default(), script)
}

/// As [`record`], with options.
#[track_caller]
pub fn record_with(options: Options, script: impl FnOnce()) -> Trace {
    let kept = start(options);
    script();
    let stats = trace::stop().expect("a vector takes everything");
    valid(kept.bytes(), stats)
}

/// Starts a trace that is kept. Its end may take as long as anything in tests: a debug build has many names to find.
#[track_caller]
pub fn start(options: Options) -> Kept {
    self_check::want_other_formats(true);
    let kept = Kept::default();
    let options = Options { drain_timeout: options.drain_timeout.max(PATIENCE), ..options };
    trace::start_with(kept.clone(), options).expect("no other trace goes on");
    kept
}

/// Checks that a further trace can be recorded now. It has no stacks, which would take time.
#[track_caller]
pub fn assert_works() {
    let trace = record(|| rtprof::set_heap_goal(12_345));
    trace.assert_whole();
    let mut goals = trace.parsed.events_of(EventType::HeapGoal).map(|goal| goal.args()[0]);
    assert_eq!(goals.next_back(), Some(12_345));
}

/// Makes a trace of its bytes, which must be valid and agree with the other formats of the same recording.
#[track_caller]
pub fn valid(bytes: Vec<u8>, stats: Stats) -> Trace {
    let parsed = parse(&bytes, "trace");
    assert_eq!(stats.bytes, bytes.len() as u64, "the statistics count the file's bytes");
    let others = self_check::take_other_formats();
    for (format, other_bytes) in &others {
        if *format == Format::Perfetto {
            keep(other_bytes);
            continue;
        }
        let other = parse(other_bytes, format.name());
        if *format == Format::V1 {
            let disagreements = rtprof_trace_check::disagreements(&other, &parsed);
            if !disagreements.is_empty() {
                let name = |format: Format| format!("disagrees-{}-{}", std::process::id(), format.name());
                let paths = [saved(&name(Format::default()), &bytes), saved(&name(Format::V1), other_bytes)];
                panic!("the formats disagree: {}\nthey are in {paths:?}", disagreements.join("\n"));
            }
        }
    }
    let trace = Trace { bytes, stats, parsed, others };
    if !trace.others.is_empty() {
        let disagreement = trace.in_perfetto().disagreement(&trace.parsed);
        if let Some(disagreement) = disagreement {
            let name = format!("disagrees-{}", std::process::id());
            let paths =
                trace.others.iter().map(|(format, bytes)| saved(&format!("{name}-{}", format.name()), bytes));
            panic!("the formats disagree: {disagreement}\nthey are in {:?}", paths.collect::<Vec<_>>());
        }
    }
    trace
}

/// Keeps a trace for `ci/perfetto.sh`, if that is wanted.
pub fn keep(bytes: &[u8]) {
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    if let Some(folder) = std::env::var_os("RTPROF_KEEP_PERFETTO") {
        let number = KEPT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}.perfetto-trace", folder::test_crate(), std::process::id());
        std::fs::write(Path::new(&folder).join(name), bytes).expect("the folder exists");
    }
}

/// Reads a trace. An invalid one is saved for inspection.
#[track_caller]
pub fn parse(bytes: &[u8], what: &str) -> Parsed {
    rtprof_trace_check::validate(bytes).unwrap_or_else(|invalid| {
        let path = saved(&format!("invalid-{what}-{}", std::process::id()), bytes);
        panic!("{what}: {invalid}\nthe trace is in {}", path.display());
    })
}

/// Saves a trace in the build's own folder.
pub fn saved(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder::tmp().join(format!("{name}.trace"));
    std::fs::write(&path, bytes).expect("the build's own folder can be written");
    path
}

impl Trace {
    /// Returns the same trace in the first format.
    #[track_caller]
    pub fn in_first_format(&self) -> Trace {
        let (_, bytes) = self.others.iter().find(|(format, _)| *format == Format::V1).expect("it was wanted");
        Trace { parsed: parse(bytes, "v1"), bytes: bytes.clone(), stats: self.stats, others: Vec::new() }
    }

    /// Returns the same trace in Perfetto's format.
    #[track_caller]
    pub fn in_perfetto(&self) -> perfetto::Trace {
        let wanted = |(format, _): &&(Format, _)| *format == Format::Perfetto;
        let (_, bytes) = self.others.iter().find(wanted).expect("it was wanted");
        perfetto::check(bytes).unwrap_or_else(|fault| {
            let path = saved(&format!("invalid-perfetto-{}", std::process::id()), bytes);
            panic!("{fault}\nthe trace is in {}", path.display());
        })
    }

    /// Asserts that nothing was lost, and nothing was omitted.
    #[track_caller]
    pub fn assert_whole(&self) {
        let Stats { dropped_events, dropped_buffers, dropped_stacks, dropped_names, .. } = self.stats;
        let dropped = [dropped_events, dropped_buffers, dropped_stacks, dropped_names];
        assert_eq!((dropped, self.stats.omitted_events), ([0; 4], 0), "{:?}", self.stats);
    }

    /// Asserts that nothing was lost, and nothing was omitted but the ends of regions and tasks that began before the
    /// trace.
    #[track_caller]
    pub fn assert_whole_but_for_what_began_before(&self) {
        let Stats { dropped_events, dropped_buffers, dropped_stacks, dropped_names, .. } = self.stats;
        let dropped = [dropped_events, dropped_buffers, dropped_stacks, dropped_names];
        assert_eq!(dropped, [0; 4], "{:?}", self.stats);
    }

    /// Returns the only goroutine of this name.
    #[track_caller]
    pub fn goroutine(&self, name: &str) -> u64 {
        let found: Vec<_> = self.parsed.goroutines_named(name).collect();
        let all: Vec<_> = self.parsed.goroutines().collect();
        assert_eq!(found.len(), 1, "goroutines called {name}: {found:?} of {all:?}");
        found[0]
    }

    /// Returns the events that a goroutine made, or that happened to it, in their order.
    pub fn story(&self, goroutine: u64) -> Vec<Event<'_>> {
        let is_about = |event: &Event<'_>| event.g() == goroutine || event.target() == Some(goroutine);
        self.parsed.events().filter(is_about).collect()
    }

    /// Returns the events of a type that a goroutine of this name made.
    #[track_caller]
    pub fn by(&self, name: &str, event_type: EventType) -> Vec<Event<'_>> {
        let goroutine = self.goroutine(name);
        self.parsed.events_of(event_type).filter(|event| event.g() == goroutine).collect()
    }

    /// Returns the only event of a type that a goroutine of this name made.
    #[track_caller]
    pub fn only(&self, name: &str, event_type: EventType) -> Event<'_> {
        let found = self.by(name, event_type);
        let story = || self.story(self.goroutine(name));
        assert_eq!(found.len(), 1, "{} by {name}: {found:?} of {:#?}", event_type.name(), story());
        found[0]
    }

    /// Asserts the order that every trace has: times do not go back, and every wake follows its cause.
    #[track_caller]
    pub fn assert_in_order(&self) {
        let mut last = 0;
        for event in self.parsed.events() {
            assert!(event.time() >= last, "{event:?} is older than the event before it, at {last} ns");
            last = event.time();
        }
    }
}

/// Returns whether a path of functions ends in this function: `wait` in `test::wait::<T>` and in
/// `test::wait::{{closure}}`, but not in `test::wait_for_it`.
pub fn is_named(path: &str, function: &str) -> bool {
    // Types may name functions too.
    let path = path.split("::<").next().unwrap_or(path);
    path.split("::").any(|segment| segment == function)
}

/// Returns whether the event's stack contains this function.
pub fn has(event: Event<'_>, function: &str) -> bool {
    event.stack().any(|frame| is_named(frame.function, function))
}

/// Checks an event's stack: it goes from a function of the program, not of the profiler, through `function` to the name
/// of its goroutine.
#[track_caller]
pub fn check_stack(event: Event<'_>, function: &str, goroutine: &str) {
    let functions = event.functions();
    assert!(has(event, function), "{event:?}: no {function} in {functions:#?}");
    // For a region the tools show where it starts.
    let is_region = event.event_type() == EventType::UserRegion;
    let outermost = if is_region { functions[0] } else { goroutine };
    assert_eq!(functions.last(), Some(&outermost), "{event:?}");
    let leaf = functions[0].trim_start_matches('<');
    let is_ours = [folder::test_crate().as_str(), "test_support"].iter().any(|ours| leaf.starts_with(ours));
    assert!(is_ours, "{event:?}: {leaf} is no function of the user's, in {functions:#?}");
    assert!(functions.len() <= 128, "{event:?}: {} frames", functions.len());
}

/// Returns how long a goroutine was in the state that the event `from` began and `to` ended.
pub fn until(from: Event<'_>, to: Event<'_>) -> Duration {
    Duration::from_nanos(to.time() - from.time())
}
