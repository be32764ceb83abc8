//! `delta_heap`, `delta_mutex` and `delta_block`: the records added since the last request, under the names that
//! godeltaprof gave them.
//!
//! The server keeps the records of the last request as the baseline of the next one, for each profile, whichever client
//! sent the request. So two scrapers of one program would each get a part of the additions. Additions that were not
//! delivered completely, because the client went away, are in the next answer. (Bytes that the system had accepted for
//! the client already, up to some hundred KiB, count as delivered.)

use std::collections::HashMap;
use std::sync::Arc;

use rtprof_pprof_out::{BuiltIn, Since, Snapshot, scraped_deltas};
use rtprof_runtime::hook;
use rtprof_runtime::lock::fork_safe::PerProcess;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::answer::{self, Refusal};
use crate::body::STALL;
use crate::endpoints::profile;
use crate::request::names::Names;
use crate::request::route::delta_name;
use crate::work::name_search;
use crate::work::response_writer::{Failure, ResponseWriter};

/// The records of the last request; `None` before the first request.
type Baseline = Arc<Mutex<Option<Snapshot>>>;

/// Exclusive access to a baseline.
type BaselineGuard = OwnedMutexGuard<Option<Snapshot>>;

/// By the name of the profile. A forked child, which has no connections, begins without baselines.
static BASELINES: PerProcess<HashMap<&'static str, Baseline>> = PerProcess::new();

/// Waits for the baseline of this profile's delta. One request at a time has it: the next delta begins where this one
/// ends, if the client takes this one. On the engine's thread.
pub(crate) async fn baseline(built_in: &BuiltIn) -> Result<BaselineGuard, Refusal> {
    let all = BASELINES.get(|| scraped_deltas().map(|row| (row.name(), Baseline::default())).collect());
    let baseline = all.get(built_in.name()).cloned().ok_or_else(profile::unknown)?;
    let locked = tokio::time::timeout(STALL, baseline.lock_owned()).await;
    locked.map_err(|_| {
        Refusal::busy(format!("{} is being read by somebody else; try again", delta_name(built_in)))
    })
}

/// Writes the additions to the profile since its baseline, and makes the records that the client then has the baseline.
pub(crate) fn answer(
    response: &mut ResponseWriter,
    built_in: &'static BuiltIn,
    mut baseline: BaselineGuard,
    publish: bool,
    names: Names,
) -> Result<(), Failure> {
    let subject = built_in.profile().ok_or_else(profile::unknown)?;
    response.charge()?;
    if publish {
        profile::publish();
    }
    let now = profile::take(&subject)?;
    let added = match &*baseline {
        Some(baseline) => now.since(baseline, Since::Accumulated),
        // The first request gets everything since the program began.
        None => {
            // Allocations of an export appear in no profile.
            let _workspace = hook::workspace();
            now.clone()
        }
    };
    name_search::find(response, &added, names.patience(false))?;
    response.begin(move |body| answer::attachment(&delta_name(built_in), body))?;
    added.write_proto(&mut *response, names.symbolization())?;
    response.deliver()?;
    *baseline = Some(now);
    Ok(())
}
