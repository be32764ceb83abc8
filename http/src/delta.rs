//! `delta_heap`, `delta_mutex` and `delta_block`: what was added since the last request, under the names that
//! godeltaprof gave them.
//!
//! The server keeps the records of the last request, one set for each, whoever asked: two scrapers of one program
//! would share out what is added between them. What was not handed over to the end, because the client went meanwhile,
//! is in the next answer. (What the system had taken for it already, up to some hundred KiB, counts as handed over.)

use std::sync::Arc;

use http::Response;
use rtprof_pprof_out::{Since, Snapshot, lookup};
use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::hook;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::capture;
use crate::engine::Link;
use crate::names::{self, Names};
use crate::slots::CapturePermits;
use crate::stream::{self, STALL};

/// The records of the last request, if there was one.
type Last = Arc<Mutex<Option<Arc<Snapshot>>>>;

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

/// What was added to the profile of this name. On the engine's thread.
pub(crate) async fn answer(
    link: Link,
    slots: CapturePermits,
    name: &'static str,
    publish: bool,
    names: Names,
) -> Result<Response<Body>, Refusal> {
    let (Some(profile), Some(last)) = (lookup(name), last_of(name)) else {
        return Err(capture::unknown_profile());
    };
    // One at a time: the next one begins where this one ends, if its client takes it.
    let Ok(last) = tokio::time::timeout(STALL, last.lock_owned()).await else {
        return Err(Refusal::busy(format!("delta_{name} is being read by somebody else; try again")));
    };
    let place = slots.take().await?;
    if publish {
        capture::publish(&link).await?;
    }
    let now = Arc::new(capture::take(&link, &profile).await?);
    let (base, later) = (last.clone(), now.clone());
    let added = move || match base {
        Some(base) => later.since(&base, Since::Accumulated),
        // The first time, since the program began.
        None => {
            // What an export allocates is in no profile.
            let _workspace = hook::workspace();
            Snapshot::clone(&later)
        }
    };
    let added = link.computing(added).await?;
    let added = names::found(&link, added, names.patience(false)).await?;
    let (told, taken) = oneshot::channel();
    let body =
        stream::body(&link, place, Some(told), move |w| added.write_proto(w, names.symbolization())).await?;
    link.spawn(keep(last, now, taken));
    Ok(answer::attachment(&format!("delta_{name}"), body))
}

/// Keeps what the client has now, once it has it.
async fn keep(
    mut last: OwnedMutexGuard<Option<Arc<Snapshot>>>,
    now: Arc<Snapshot>,
    taken: oneshot::Receiver<()>,
) {
    if taken.await.is_ok() {
        *last = Some(now);
    }
}
