//! `set_alloc_free_trace`: every malloc, free and collector cycle of the sampled set on stderr.

use std::collections::HashSet;
use std::hint::black_box;
use std::process::Command;

use test_support::child;

const SIZE: usize = 1901;
const COUNT: usize = 5;
const LARGE: usize = 19_001;

#[inline(never)]
fn traced_objects() -> [Box<[u8; SIZE]>; COUNT] {
    black_box(std::array::from_fn(|_| Box::new([1; SIZE])))
}

fn traced_program() {
    rtprof::set_mem_profile_rate(1);
    drop(traced_objects());
    rtprof::set_alloc_free_trace(true);
    drop(traced_objects());
    // A thread that ends makes an allocation and a free; growing is a free and an allocation.
    std::thread::spawn(|| drop(black_box(String::from("thread")))).join().expect("it ends well");
    let mut grown = black_box(Vec::<u8>::with_capacity(SIZE + 1));
    grown.reserve_exact(SIZE + 2);
    drop(black_box(grown));
    // Too large for the pool; the object is sampled before and after growing.
    let mut large = black_box(Vec::<u8>::with_capacity(LARGE));
    large.reserve_exact(LARGE + 1);
    drop(black_box(large));
    rtprof::collector::cycle();
    rtprof::set_alloc_free_trace(false);
    drop(traced_objects());
}

/// One printed event with its stack.
#[derive(Debug)]
struct Event {
    kind: String,
    address: String,
    size: usize,
    stack: Vec<String>,
}

/// Parses events: `tracealloc(0x7f00, 0x20)` or `tracefree(..)`, then a line for each frame, then an empty line.
fn events(text: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let Some((kind, rest)) = line.split_once('(').filter(|(kind, _)| kind.starts_with("trace")) else {
            open &= !line.is_empty();
            if open {
                events.last_mut().expect("an event is open").stack.push(line.trim().to_owned());
            }
            continue;
        };
        let rest = rest.strip_suffix(')').unwrap_or_else(|| panic!("a torn line: {line:?}"));
        let (address, size) = rest.split_once(", ").unwrap_or((rest, "0x0"));
        let size = size.strip_prefix("0x").and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let size = size.unwrap_or_else(|| panic!("a torn line: {line:?}"));
        events.push(Event { kind: kind.to_owned(), address: address.to_owned(), size, stack: Vec::new() });
        open = true;
    }
    events
}

#[test]
fn events_are_printed() {
    let test = "events_are_printed";
    if child::is(test, "") {
        return traced_program();
    }
    let output = child::output(test, "", |_| {});
    assert!(output.status.success(), "{}", child::report(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    let events = events(&text);
    let of = |kind: &str, size: usize| -> Vec<&Event> {
        events.iter().filter(|event| event.kind == kind && event.size == size).collect()
    };

    let allocated = of("tracealloc", SIZE);
    assert_eq!(allocated.len(), COUNT, "each once, and only while it is on:\n{text}");
    let addresses: HashSet<_> = allocated.iter().map(|event| &event.address).collect();
    let freed: HashSet<_> = of("tracefree", SIZE).iter().map(|event| &event.address).collect();
    assert_eq!(freed, addresses, "each is freed again:\n{text}");
    assert_eq!(of("tracealloc", SIZE + 1).len(), 1, "before it grows:\n{text}");
    assert_eq!(of("tracefree", SIZE + 1).len(), 1, "a realloc is a free:\n{text}");
    assert_eq!(of("tracealloc", SIZE + 2).len(), 1, "and an allocation:\n{text}");
    for (kind, size) in ["tracealloc", "tracefree"].into_iter().flat_map(|k| [(k, LARGE), (k, LARGE + 1)]) {
        assert_eq!(of(kind, size).len(), 1, "{kind} of a large object:\n{text}");
    }
    assert_eq!(of("tracealloc", "thread".len()).len(), 1, "from another thread:\n{text}");
    assert!(text.contains("tracegc()") && text.contains("end tracegc"), "a cycle is printed:\n{text}");
    for event in &allocated {
        assert!(event.stack.iter().any(|line| line.contains("+0x")), "module and offset: {event:?}");
    }
    resolve(allocated[0]);
}

/// Resolves names in the documented way: addr2line with the module and the offset.
fn resolve(event: &Event) {
    let binary = std::env::current_exe().expect("a test knows its own binary");
    let binary = binary.to_string_lossy();
    let offsets = event.stack.iter().filter_map(|line| {
        let (module, offset) = line.rsplit_once("+0x")?;
        let offset = offset.split(|other: char| !other.is_ascii_hexdigit()).next()?;
        module.trim().ends_with(&*binary).then(|| format!("0x{offset}"))
    });
    let mut command = Command::new("addr2line");
    command.args(["-C", "-f", "-i", "-e", &binary]).args(offsets);
    let output = child::finish(&mut command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("traced_objects"), "{command:?} printed:\n{text}\nfor {event:#?}");
}
