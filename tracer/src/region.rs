//! Regions: named parts of a goroutine's time.

use core::sync::atomic::Ordering;

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::task::Task;

use crate::record::{RecordKind, StringId};
use crate::session;
use crate::task;
use crate::thread::{RECORDER, is_enabled, record_own};

/// A region of the goroutine that has started it, until it is dropped. Go: `trace.Region`.
///
/// Regions of a goroutine are nested. If a region is dropped before the regions inside it, these end with it. If a
/// region is dropped on another goroutine, it does not end there: it goes on until the goroutine that started it ends.
/// Inside a task of `rtprof::task` a region belongs to the task; it may be held across an await, after which another
/// thread may poll the task. In other async code a region belongs to the thread that polls.
#[must_use = "the region ends when this is dropped"]
#[derive(Debug)]
pub struct Region {
    /// The trace in which it was recorded; 0 for none.
    session: u32,
    name: StringId,
    task: u64,
    goroutine: u64,
}

/// Starts a region of the current goroutine, and of the current [`Task`](crate::Task), if there is one. A name is cut
/// to 1,024 bytes. While nothing is recorded this is one load. Go: `trace.StartRegion`.
#[inline]
pub fn start_region(name: &str) -> Region {
    if is_enabled()
        && let Some(region) = start(name)
    {
        return region;
    }
    Region { session: 0, name: 0, task: 0, goroutine: 0 }
}

/// Runs `f` in a region. It ends when `f` returns or panics. Go: `trace.WithRegion`.
#[inline]
pub fn with_region<T>(name: &str, f: impl FnOnce() -> T) -> T {
    let _region = start_region(name);
    f()
}

#[cold]
#[inline(never)]
fn start(name: &str) -> Option<Region> {
    record_own(|writer, own| {
        if writer.count_if_lost() {
            return None;
        }
        let (name, task, stack) = (writer.string(name), task::current(), writer.stack());
        writer.write(RecordKind::RegionBegin, writer.now(), [task, name.into(), stack.into()]);
        Some(Region { session: session::number(), name, task, goroutine: running(own) })
    })?
}

/// Returns the number of the goroutine that runs on the current thread, whose own goroutine is `own`: the task that it
/// polls, or `own`.
fn running(own: &Goroutine) -> u64 {
    own.polls().map_or(own.id(), Task::id)
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        if self.session != 0 {
            self.end();
        }
    }
}

impl Region {
    #[cold]
    #[inline(never)]
    fn end(&self) {
        if !is_enabled() || self.session != session::number() {
            return;
        }
        if goroutine::known().is_none_or(|own| running(own) != self.goroutine) {
            RECORDER.losses.foreign_ends.fetch_add(1, Ordering::Relaxed);
            return;
        }
        record_own(|writer, _| {
            if self.session == session::number() && !writer.count_if_lost() {
                writer.write(RecordKind::RegionEnd, writer.now(), [self.task, self.name.into()]);
            }
        });
    }
}
