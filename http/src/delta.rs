//! `delta_heap`, `delta_mutex` and `delta_block`: the records added since the last request, under the names that
//! godeltaprof gave them.
//!
//! The server keeps the records of the last request, one set for each profile, whichever client sent the request. So
//! two scrapers of one program would each get a part of the additions. Additions that were not delivered completely,
//! because the client went away, are in the next answer. (Bytes that the system had accepted for the client already, up
//! to some hundred KiB, count as delivered.)

use std::sync::Arc;

use rtprof_pprof_out::{Since, Snapshot, lookup};
use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::hook;
use tokio::sync::Mutex;

use crate::answer::{self, Refusal};
use crate::capture;
use crate::names::{self, Names};
use crate::worker::{Failure, STALL, Worker};

/// The records of the last request; `None` before the first request.
type Last = Arc<Mutex<Option<Snapshot>>>;

#[derive(Default)]
struct Lasts {
    heap: Last,
    mutex: Last,
    block: Last,
}

/// A forked child, which has no connections, begins without a last request.
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

/// Writes the additions to the profile of this name since its last request, and keeps the records that the client has
/// then.
pub(crate) fn answer(
    worker: &mut Worker,
    name: &'static str,
    publish: bool,
    names: Names,
) -> Result<(), Failure> {
    let (Some(profile), Some(last)) = (lookup(name), last_of(name)) else {
        return Err(capture::unknown_profile().into());
    };
    // One request at a time: the next delta begins where this one ends, if the client takes this one.
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
        // The first request gets everything since the program began.
        None => {
            // Allocations of an export appear in no profile.
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
