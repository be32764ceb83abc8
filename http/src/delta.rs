//! `delta_heap`, `delta_mutex` and `delta_block`: the records added since the last request, under the names that
//! godeltaprof gave them.
//!
//! The server keeps the records of the last request, one set for each profile, whichever client sent the request. So
//! two scrapers of one program would each get a part of the additions. Additions that were not delivered completely,
//! because the client went away, are in the next answer. (Bytes that the system had accepted for the client already, up
//! to some hundred KiB, count as delivered.)

use std::collections::HashMap;
use std::sync::Arc;

use rtprof_pprof_out::{BuiltIn, Since, Snapshot, scraped_deltas};
use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::hook;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::answer::{self, Refusal};
use crate::capture;
use crate::names::{self, Names};
use crate::route::DELTA;
use crate::worker::{Failure, STALL, Worker};

/// The records of the last request; `None` before the first request.
type Last = Arc<Mutex<Option<Snapshot>>>;

/// Exclusive access to these records.
type LastGuard = OwnedMutexGuard<Option<Snapshot>>;

/// By the name of the profile. A forked child, which has no connections, begins without a last request.
static LASTS: PerProcess<HashMap<&'static str, Last>> = PerProcess::new();

/// Waits for the records of the last request for the delta of this profile. One request at a time has them: the next
/// delta begins where this one ends, if the client takes this one. On the engine's thread.
pub(crate) async fn last(profile: &BuiltIn) -> Result<LastGuard, Refusal> {
    let lasts = LASTS.get(|| scraped_deltas().map(|profile| (profile.name(), Last::default())).collect());
    let last = lasts.get(profile.name()).cloned().ok_or_else(capture::unknown_profile)?;
    let waiting = tokio::time::timeout(STALL, last.lock_owned()).await;
    waiting.map_err(|_| Refusal::busy(format!("{} is being read by somebody else; try again", name(profile))))
}

/// Returns the name of the profile's delta, as in its endpoint.
pub(crate) fn name(profile: &BuiltIn) -> String {
    format!("{DELTA}{}", profile.name())
}

/// Writes the additions to the profile since its last request, and keeps the records that the client has then.
pub(crate) fn answer(
    worker: &mut Worker,
    profile: &'static BuiltIn,
    mut last: LastGuard,
    publish: bool,
    names: Names,
) -> Result<(), Failure> {
    let subject = profile.profile().ok_or_else(capture::unknown_profile)?;
    worker.take_turn()?;
    if publish {
        capture::publish();
    }
    let now = capture::take(&subject)?;
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
    worker.begin(move |body| answer::attachment(&name(profile), body))?;
    added.write_proto(&mut *worker, names.symbolization())?;
    worker.deliver()?;
    *last = Some(now);
    Ok(())
}
