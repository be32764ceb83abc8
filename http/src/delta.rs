//! `delta_heap`, `delta_mutex` and `delta_block`: what was added since the last request, under the names that
//! godeltaprof gave them.
//!
//! The server keeps the records of the last request, one set for each, whoever asked: two scrapers of one program
//! would share out what is added between them. What was not handed over to the end, because the client went meanwhile,
//! is in the next answer. (What the system had taken for it already, up to some hundred KiB, counts as handed over.)

use std::sync::Arc;

use rtprof_pprof_out::{Since, Snapshot, lookup};
use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::hook;
use tokio::sync::Mutex;

use crate::answer::{self, Refusal};
use crate::capture;
use crate::names::{self, Names};
use crate::worker::{Failure, STALL, Worker};

/// The records of the last request, if there was one.
type Last = Arc<Mutex<Option<Snapshot>>>;

#[derive(Default)]
struct Lasts {
    heap: Last,
    mutex: Last,
    block: Last,
}

/// In a forked child, which has no connections, nothing was asked yet.
static LASTS: PerProcess<Lasts> = PerProcess::new();

fn last_of(name: &str) -> Option<Last> {
    let lasts = LASTS.get(Lasts::default);
    Some(match name {
        "heap" => &lasts.heap,
        "mutex" => &lasts.mutex,
        "block" => &lasts.block,
        _ => return None,
    })
    .cloned()
}

/// Writes what was added to the profile of this name since its last request, and keeps what the client has then.
pub(crate) fn answer(
    worker: &mut Worker,
    name: &'static str,
    publish: bool,
    names: Names,
) -> Result<(), Failure> {
    let (Some(profile), Some(last)) = (lookup(name), last_of(name)) else {
        return Err(capture::unknown_profile().into());
    };
    // One at a time: the next one begins where this one ends, if its client takes it.
    let Some(mut last) = worker.wait_for(STALL, last.lock_owned())? else {
        let message = format!("delta_{name} is being read by somebody else; try again");
        return Err(Refusal::busy(message).into());
    };
    worker.take_turn()?;
    if publish {
        capture::publish();
    }
    let now = capture::take(&profile)?;
    let added = match &*last {
        Some(base) => now.since(base, Since::Accumulated),
        // The first time, since the program began.
        None => {
            // What an export allocates is in no profile.
            let _workspace = hook::workspace();
            now.clone()
        }
    };
    names::find(worker, &added, names.patience(false))?;
    worker.begin(move |body| answer::attachment(&format!("delta_{name}"), body))?;
    added.write_proto(&mut *worker, names.symbolization())?;
    if worker.deliver() {
        *last = Some(now);
    }
    Ok(())
}
