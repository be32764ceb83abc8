//! What is read of a goroutine that another thread owns.

use crate::goroutine::start::Start;
use crate::goroutine::wait_reason::WaitReason;
use crate::thread::thread_create::ThreadBucket;

/// A live goroutine as of one moment.
#[derive(Clone)]
#[non_exhaustive]
pub struct LiveGoroutine {
    /// See [`Goroutine::id`](super::Goroutine::id).
    pub id: u64,
    /// See [`Goroutine::thread_id`](super::Goroutine::thread_id).
    pub thread_id: u32,
    /// See [`Goroutine::name`](super::Goroutine::name).
    pub name: String,
    /// See [`Goroutine::created_by`](super::Goroutine::created_by).
    pub created_by: Option<&'static ThreadBucket>,
    /// See [`Goroutine::start`](super::Goroutine::start).
    pub(crate) start: Option<Start>,
    /// See [`Goroutine::waiting`](super::Goroutine::waiting).
    pub waiting: Option<(WaitReason, u64)>,
}

impl core::fmt::Debug for LiveGoroutine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Goroutine")
            .field("id", &self.id)
            .field("thread_id", &self.thread_id)
            .field("name", &self.name)
            .field("created_by", &self.created_by.map(|bucket| bucket.stack()))
            .field("start", &self.start)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
