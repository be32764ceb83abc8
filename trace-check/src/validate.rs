//! Reads a trace as `go tool trace` of the newest Go and of Go 1.21 would, and more strictly.

use std::collections::HashMap;

use super::event::{ArgumentKind, EventType};
use super::header::version;
use super::invalid::{Consequence, Invalid, Violation};
use super::merge::merge;
use super::parse::{File, RawEvent, parse};
use super::parsed::Parsed;
use super::rules::Rules;
use super::tasks::own_ancestor;
use super::v2;

/// Reads a trace of either format and checks everything that can be checked.
///
/// It is stricter than the tools: faults that they accept, but then crash on or show wrongly, are errors too. Traces
/// that a Go program wrote have such faults: goroutines that they create before the first `Gomaxprocs` have no name in
/// Go 1.22 and later. [`Parsed::read`] reads them.
///
/// # Errors
/// The first fault, in the words of Go's tools where they have any.
///
/// Memory: about 100 bytes an event.
pub fn validate(bytes: &[u8]) -> Result<Parsed, Invalid> {
    let parsed = Parsed::read(bytes)?;
    match parsed.findings.first() {
        Some(finding) => Err(finding.clone()),
        None => Ok(parsed),
    }
}

impl Parsed {
    /// Reads the complete generations of a trace in the second format, whatever follows them; and returns the fault
    /// that keeps the tools from the rest, if any.
    ///
    /// # Errors
    /// If it is no trace in that format.
    pub fn read_complete(bytes: &[u8]) -> Result<(Self, Option<Invalid>), Invalid> {
        match version(bytes).filter(|version| v2::VERSIONS.contains(version)) {
            Some(version) => Ok(v2::read(bytes, version)),
            None => Err(Violation::refused("unknown or unsupported trace version").at(0)),
        }
    }

    /// Reads a trace that `go tool trace` of both Go 1.27 and 1.21, or in the second format Go 1.27, opens. Faults on
    /// which they then crash, or which they show wrongly, are in [`Parsed::findings`].
    ///
    /// # Errors
    /// If one of them does not open it.
    pub fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        if let Some(version) = version(bytes).filter(|version| v2::VERSIONS.contains(version)) {
            let (parsed, fault) = v2::read(bytes, version);
            return fault.map_or(Ok(parsed), Err);
        }
        let mut file = parse(bytes)?;
        let events = merge(&mut file)?;
        let mut rules = Rules::new(file.version);
        for event in &events {
            let mut args = event.args;
            // The tools treat an undefined stack as none.
            if let Some(stack) = event.event.stack()
                && !file.stacks.contains_key(&args[stack])
            {
                args[stack] = 0;
            }
            let args = &args[..event.args().len()];
            let result = rules.event(event.p, event.tick as u64, event.event, args);
            match result.map_err(|violation| violation.at(event.offset)) {
                Err(refused) if refused.violation.consequence == Consequence::Refused => return Err(refused),
                Err(finding) => file.findings.push(finding),
                Ok(()) => {}
            }
        }
        if let Err(violation) = rules.finish() {
            file.findings.push(violation.into());
        }
        if let Some(task) = own_ancestor(&events) {
            let text = format!("task {task} is part of itself");
            file.findings.push(Violation::crash(text).into());
        }
        check_references(&mut file, &events);
        let File { ticks_per_second, strings, stacks, messages, findings, .. } = file;
        Ok(Self {
            ticks_per_second,
            generations: vec![0],
            events,
            strings,
            stacks,
            messages,
            findings: findings.0,
        })
    }
}

/// Checks that every referenced string and stack is defined.
fn check_references(file: &mut File, events: &[RawEvent]) {
    let is_string = |id: u64| id == 0 || file.strings.contains_key(&id);
    // The tools have a table of PCs, not of frames: they look up the first string that a PC names.
    let mut undefined: HashMap<u64, u64> = HashMap::new();
    for (&id, frames) in &file.stacks {
        let strings = frames.iter().flat_map(|frame| [frame.function, frame.file]);
        for string in strings.filter(|&string| !is_string(string)) {
            let stack = undefined.entry(string).or_insert(id);
            *stack = id.min(*stack);
        }
    }
    let mut undefined: Vec<_> = undefined.into_iter().collect();
    undefined.sort_unstable();
    for (string, stack) in undefined {
        let text = format!("expected id {string} in string table: a frame of stack {stack} refers to it");
        file.findings.push(Violation::crash(text).into());
    }
    for event in events {
        let name = event.event.name();
        if let Some(string) = event.argument(ArgumentKind::String)
            && !(string == 0 || file.strings.contains_key(&string))
        {
            let text = format!("expected id {string} in string table: {name} refers to it");
            file.findings.push(Violation::crash(text).at(event.offset));
        }
        let is_missing = |stack: u64| stack != 0 && !file.stacks.contains_key(&stack);
        if event.event == EventType::GoCreate && is_missing(event.args[1]) {
            let text = format!("expected id {} in trace.stack table: {name} refers to it", event.args[1]);
            file.findings.push(Violation::crash(text).at(event.offset));
        }
        if let Some(stack) = event.argument(ArgumentKind::Stack).filter(|&stack| is_missing(stack)) {
            let text = format!("stack {stack} is not defined; {name} is shown without one");
            file.findings.push(Violation::misread(text).at(event.offset));
        }
    }
}
