//! The checks of a trace with `go tool trace`: every event, every profile, every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rtprof::trace::Format;
use rtprof_trace_check::{EventType, Parsed};

use crate::go::{self, Go};
use crate::profile::Sample;
use crate::recording::{self, Trace};
use crate::web;

/// Returns the name under which Go 1.21 prints an event.
fn plain_name(event_type: EventType) -> &'static str {
    match event_type {
        EventType::GoStartLocal => EventType::GoStart.name(),
        EventType::GoUnblockLocal => EventType::GoUnblock.name(),
        EventType::StwStart => "STWStart",
        EventType::StwDone => "STWDone",
        other => other.name(),
    }
}

/// Checks that the tools read every event that we have written, and no other.
pub fn check_events(go: &Go, path: &Path, parsed: &Parsed) {
    let text = go.trace_events(path);
    if go.reads_second() {
        // Newer versions print the events in the terms of the second format: `M=1 P=2 G=3 StateTransition ..`.
        let lines = text.lines().filter(|line| line.starts_with("M="));
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for kind in lines.filter_map(|line| line.split_whitespace().nth(3)) {
            *kinds.entry(kind).or_default() += 1;
        }
        let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
        let regions = parsed.events_of(EventType::UserRegion);
        let (begins, ends): (Vec<_>, Vec<_>) = regions.partition(|event| event.argument("mode") == Some(0));
        let expected = [
            ("Log", parsed.count(EventType::UserLog)),
            ("TaskBegin", parsed.count(EventType::UserTaskCreate)),
            ("TaskEnd", parsed.count(EventType::UserTaskEnd)),
            ("RegionBegin", begins.len()),
            ("RegionEnd", ends.len()),
        ];
        for (kind, expected) in expected {
            assert_eq!(count(kind), expected, "Go {}: {kind} of {kinds:?}", go.version);
        }
        let changes =
            [EventType::GoCreate, EventType::GoStart, EventType::GoStartLocal, EventType::ProcStart];
        // A goroutine that was there before has several events here, but one in the second format.
        let changes: BTreeSet<_> = changes
            .iter()
            .flat_map(|&event_type| parsed.events_of(event_type).map(|it| it.offset()))
            .collect();
        let changes = changes.len();
        assert!(count("StateTransition") >= changes, "Go {}: {changes} of {kinds:?}", go.version);
        let is_first_format = std::fs::read(path).expect("it was saved").starts_with(b"go 1.19 trace");
        if !is_first_format {
            check_wire(go, path, parsed);
        }
    } else {
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        for kind in text.lines().filter_map(|line| line.split_whitespace().nth(1)) {
            *told.entry(kind).or_default() += 1;
        }
        let mut expected = BTreeMap::new();
        for event in parsed.events() {
            *expected.entry(plain_name(event.event_type())).or_default() += 1;
        }
        assert_eq!(told, expected, "Go {}", go.version);
    }
}

/// Checks that the tools read the file's own events, without an interpretation of them.
fn check_wire(go: &Go, path: &Path, parsed: &Parsed) {
    let text = go.trace_wire_events(path);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in text.lines().filter_map(|line| line.split_whitespace().next()) {
        *kinds.entry(kind).or_default() += 1;
    }
    let regions = parsed.events_of(EventType::UserRegion);
    let begins = regions.filter(|event| event.argument("mode") == Some(0)).count();
    let expected = [
        ("UserLog", parsed.count(EventType::UserLog)),
        ("UserTaskBegin", parsed.count(EventType::UserTaskCreate)),
        ("UserTaskEnd", parsed.count(EventType::UserTaskEnd)),
        ("UserRegionBegin", begins),
        ("UserRegionEnd", parsed.count(EventType::UserRegion) - begins),
        ("HeapAlloc", parsed.count(EventType::HeapAlloc)),
        ("CPUSample", parsed.count(EventType::CpuSample)),
        ("Frequency", parsed.generations().len()),
    ];
    for (kind, expected) in expected {
        assert_eq!(kinds.get(kind).copied().unwrap_or(0), expected, "Go {}: {kind} of {kinds:?}", go.version);
    }
}

/// Checks the four profiles, and the functions that must be in them.
pub fn check_profiles(go: &Go, path: &Path, expected: &[(&str, &[&str])]) {
    for kind in ["net", "sync", "syscall", "sched"] {
        let profile = go.trace_profile(kind, path);
        assert_eq!(profile.sample_types(), [("contentions", "count"), ("delay", "nanoseconds")]);
        let samples = profile.samples();
        // Go 1.22 and 1.23 overlook the ends of system calls, and starts, because these have no stacks.
        let is_overlooked = go.overlooks_starts() && ["syscall", "sched"].contains(&kind);
        let expected = expected.iter().filter(|(of, _)| *of == kind && !is_overlooked);
        for function in expected.flat_map(|(_, functions)| *functions) {
            let is_there = samples.iter().any(|sample| {
                let is_in = sample.frames.iter().any(|frame| recording::is_named(&frame.function, function));
                is_in && sample.values[0] >= 1 && sample.values[1] > 0
            });
            let leaf = |sample: &Sample| sample.frames.first().map(|frame| frame.function.clone());
            let all = || samples.iter().map(leaf).collect::<BTreeSet<_>>();
            assert!(is_there, "Go {}: no {function} in -pprof={kind}: {:?}", go.version, all());
        }
    }
}

/// Returns the targets of a page's links; of those that differ only in their ranges of latency (`&lat`), one is enough.
fn links(page: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let links = page.split("href=").skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches(['"', '\'']);
        let end = rest.find(['"', '\'', '>', ' '])?;
        Some(rest[..end].replace("&amp;", "&"))
    });
    links
        .filter(|link| link.starts_with('/') && !link.starts_with("/static"))
        .map(|link| if is_profile(&link) { raw(link) } else { link })
        .filter(|link| seen.insert(link.split("&lat").next().unwrap_or(link).to_owned()))
        .collect()
}

/// Returns whether a page is a drawn profile. Each drawing takes half a second, and is made by `go tool pprof`.
fn is_profile(link: &str) -> bool {
    let path = link.split('?').next().unwrap_or(link).trim_start_matches("/region").trim_start_matches('/');
    ["io", "block", "syscall", "sched"].contains(&path)
}

/// Returns the link to the undrawn profile, which `go tool trace` itself makes.
fn raw(link: String) -> String {
    match link.split_once('?') {
        Some((_, arguments)) if arguments.contains("raw=1") => link,
        Some(_) => link + "&raw=1",
        None => link + "?raw=1",
    }
}

/// Checks every page that a user can reach by links from the first page and from the lists, and the data of the time
/// lines. Returns the events of the time line by P.
pub fn check_pages(go: &Go, path: &Path) -> Vec<serde_json::Value> {
    let viewer = go.view(path);
    let fetch = |target: &str| {
        let answer = web::get(viewer.address(), target);
        assert_eq!(
            answer.status,
            200,
            "Go {}: {target}: {}",
            go.version,
            String::from_utf8_lossy(&answer.body)
        );
        answer.body
    };
    let get = |target: &str| String::from_utf8(fetch(target)).expect("pages are UTF-8");
    let events = |target: &str| {
        let json: serde_json::Value = serde_json::from_str(&get(target)).expect("it is JSON");
        json["traceEvents"].as_array().expect("it is a list").clone()
    };
    let events_by_p = events("/jsontrace");
    if go.reads_second() {
        assert!(!events("/jsontrace?view=thread").is_empty(), "Go {}", go.version);
    }
    let mut pages = BTreeSet::from(["/".to_owned()]);
    for list in ["/goroutines", "/usertasks", "/userregions"] {
        pages.extend(links(&get(list)));
    }
    // A region is listed by type, function, file and line, the last two in a line like `lib.rs:7</pre>`. A region
    // without a type stands for a goroutine.
    for region in get("/userregions").lines().filter(|line| line.contains(":0</")) {
        let is_goroutine = region.contains("<td><br>") || region.contains("&#34;&#34;<br>");
        assert!(is_goroutine, "Go {}: {region}", go.version);
    }
    pages.extend(links(&get("/")));
    // Some pages are profiles to be saved.
    let read = |page: &String| links(&String::from_utf8_lossy(&fetch(page)));
    let details: Vec<String> = pages.iter().flat_map(read).collect();
    let is_new = |detail: &String| pages.insert(detail.clone());
    for detail in details.into_iter().filter(is_new).take(40) {
        fetch(&detail);
    }
    viewer.close();
    events_by_p
}

/// A toolchain with a trace that it reads.
pub struct Reading {
    pub go: Go,
    pub format: &'static str,
    pub path: PathBuf,
    pub parsed: Parsed,
}

/// Saves a trace in each format that it has, and returns them with the toolchains that read them.
pub fn readings(test: &str, trace: &Trace) -> Vec<Reading> {
    let mut readings = Vec::new();
    for (go, format) in go::trace_toolchains(test) {
        let mut others =
            trace.others.iter().filter(|(other, _)| other.name() == format).map(|(_, bytes)| bytes);
        let own = Some(&trace.bytes).filter(|_| format == Format::default().name());
        if let Some(bytes) = own.or_else(|| others.next()) {
            let path = recording::saved(&format!("interop-{test}-{format}"), bytes);
            let parsed = rtprof_trace_check::validate(bytes).expect("it was valid before");
            readings.push(Reading { go, format, path, parsed });
        }
    }
    readings
}

/// Runs all checks with all versions.
pub fn check(test: &str, trace: &Trace, profiles: &[(&str, &[&str])]) {
    for Reading { go, path, parsed, .. } in readings(test, trace) {
        let ended: BTreeSet<_> = parsed.events_of(EventType::GoEnd).map(|end| end.g()).collect();
        check_events(&go, &path, &parsed);
        check_profiles(&go, &path, profiles);
        let drawn = check_pages(&go, &path);
        let names: BTreeSet<_> = drawn.iter().filter_map(|event| event["name"].as_str()).collect();
        // A goroutine that ran long enough to be drawn is drawn under its name.
        for (goroutine, name) in parsed.goroutines().filter(|(_, name)| !name.is_empty()) {
            let shown = format!("G{goroutine} {name}");
            let runs = ended.contains(&goroutine);
            assert!(!runs || names.contains(&*shown), "Go {}: no {shown} in {names:?}", go.version);
        }
    }
}
