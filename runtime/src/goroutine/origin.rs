//! Where a goroutine comes from, as its creator has reported it.

use crate::goroutine::start::Start;
use crate::thread::thread_create::ThreadBucket;

/// What a goroutine's creator has determined before its thread exists.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// The id of the goroutine, from [`crate::goroutine_id::reserve`].
    pub goroutine: u64,
    /// The initial mark of its state word; 0 without an observer.
    pub mark: u32,
}

/// The origin of a goroutine, as far as its creator has reported it.
#[derive(Clone, Copy, Default)]
pub struct Origin {
    /// The result of [`crate::thread::thread_create::stack`] in the creator.
    pub created_by: Option<&'static ThreadBucket>,
    /// The id of the creating goroutine; 0 where it is not known.
    pub creator: u64,
    /// What it runs, and the line that started it.
    pub start: Option<Start>,
    /// What the creator has determined in advance.
    pub birth: Option<Birth>,
}
