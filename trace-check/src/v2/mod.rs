//! Reads traces in the formats "go 1.22 trace" to "go 1.26 trace" by the rules of Go's `internal/trace`, and makes the
//! events of the first format of them, so that traces of both formats can be compared.
//!
//! - A goroutine that is only known by its state is shown as created and brought to that state.
//! - The local forms and the sequence numbers are those that the first format would have.
//! - The end of a system call is `GoSysExit`, and the start of the goroutine if it keeps its P.
//! - What a generation repeats of earlier ones is left out.
//! - P 0 and the goroutine that our traces use outside of threads are "none", as in the first format.

mod causes;
mod cursor;
mod generation;
mod interned;
mod ordering;
mod ranges;
mod rules;
mod specs;
#[cfg(test)]
mod tests;
mod versions;

use crate::event::EventType;
use crate::invalid::{Invalid, Violation};
use crate::parse::Findings;
use crate::parsed::Parsed;
use crate::tasks::own_ancestor;

use generation::Generations;
use ordering::Ordering;

pub(crate) use versions::VERSIONS;

/// Reads the complete generations of a trace of this version, which begins after the header. Also returns the fault
/// that keeps a reader from the rest, if any.
pub(crate) fn read(bytes: &[u8], version: u32) -> (Parsed, Option<Invalid>) {
    let mut ordering = Ordering::new();
    let mut ticks_per_second = 0;
    let mut generations = Generations::new(bytes, version);
    let mut begins = Vec::new();
    let fault = loop {
        match generations.next() {
            Ok(None) => break generations.fault(),
            Err(fault) => break Some(fault),
            Ok(Some(generation)) => {
                if ticks_per_second != 0 && ticks_per_second != generation.ticks_per_second {
                    let text = "the frequency differs from generation to generation";
                    break Some(Violation::refused(text).into());
                }
                ticks_per_second = generation.ticks_per_second;
                let begin = generation.begin.max(ordering.last_tick);
                if let Err(fault) = ordering.generation(generation) {
                    break Some(fault);
                }
                begins.push(begin);
            }
        }
    };
    let mut findings = Findings::default();
    let Ordering { interned, events, findings: found, .. } = ordering;
    found.into_iter().for_each(|finding| findings.push(finding));
    if let Some(task) = own_ancestor(&events) {
        findings.push(Violation::crash(format!("task {task} is part of itself")).into());
    }
    let (strings, stacks) = interned.tables();
    let parsed = Parsed {
        ticks_per_second: ticks_per_second.max(1),
        generations: begins,
        events,
        strings,
        stacks,
        messages: Vec::new(),
        findings: findings.0,
    };
    (parsed, fault)
}

/// Returns the event of the first format that waits for this reason have.
fn block_event(reason: &str) -> EventType {
    const LIBRARIES: [&str; 6] = ["tokio", "futures", "async-io", "async-channel", "async-lock", "flume"];
    let in_library = reason.split_once(": ").filter(|(library, _)| LIBRARIES.contains(library));
    match in_library.map_or(reason, |(_, reason)| reason) {
        "sync: condvar" | "sync, condition" => EventType::GoBlockCond,
        "channel send" => EventType::GoBlockSend,
        "channel receive" => EventType::GoBlockRecv,
        "select" => EventType::GoBlockSelect,
        "network" => EventType::GoBlockNet,
        "sleep" => EventType::GoSleep,
        reason if reason.starts_with("sync") => EventType::GoBlockSync,
        _ => EventType::GoBlock,
    }
}
