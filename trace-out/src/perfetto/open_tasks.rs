//! The user tasks that are open at the end of a generation.

use std::sync::Arc;

/// A task that is open at the end of a generation.
#[derive(Debug)]
pub(super) struct UserTask {
    pub(super) task: u64,
    /// 0 for none. It may be over.
    pub(super) parent: u64,
    pub(super) name: Arc<str>,
}

/// The tasks that are open at the end of a generation.
///
/// Many tasks may be open for long, and a flight recorder keeps a list for each generation. So a list consists of
/// blocks, and shares those without a change with the list of the generation before.
#[derive(Debug, Default)]
pub(super) struct OpenTasks {
    /// In the order of the tasks' ids, so that parents come first.
    pub(super) blocks: Vec<Arc<[UserTask]>>,
    /// The memory of the blocks that are new.
    pub(super) new: usize,
}

impl OpenTasks {
    pub(super) fn iter(&self) -> impl Iterator<Item = &UserTask> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// Returns the memory that it takes beside the list before it, roughly.
    pub(super) fn memory(&self) -> usize {
        self.new + size_of_val(&*self.blocks)
    }
}
