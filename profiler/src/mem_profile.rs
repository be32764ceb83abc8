//! The heap profile in the form of `runtime.MemProfile`: a record per bucket, not scaled.

use rtprof_runtime::stack::MAX_STACK;

use crate::block_profile::{stack_of, write_stack};
use crate::mem::{MemCount, PublishedProfile};

/// Objects allocated and freed by one call stack, as sampled: not scaled to the whole program. Go:
/// `runtime.MemProfileRecord`.
#[derive(Clone, Debug)]
pub struct MemProfileRecord {
    /// Bytes of sampled objects allocated.
    pub alloc_bytes: i64,
    /// Bytes of sampled objects freed.
    pub free_bytes: i64,
    /// Sampled objects allocated.
    pub alloc_objects: i64,
    /// Sampled objects freed.
    pub free_objects: i64,
    /// Return addresses, leaf first; ends at the first 0.
    pub stack0: [usize; MAX_STACK],
}

impl Default for MemProfileRecord {
    fn default() -> Self {
        Self { alloc_bytes: 0, free_bytes: 0, alloc_objects: 0, free_objects: 0, stack0: [0; MAX_STACK] }
    }
}

impl MemProfileRecord {
    /// Returns the bytes allocated and not freed.
    pub fn in_use_bytes(&self) -> i64 {
        self.alloc_bytes - self.free_bytes
    }

    /// Returns the objects allocated and not freed.
    pub fn in_use_objects(&self) -> i64 {
        self.alloc_objects - self.free_objects
    }

    /// Returns the stack: return addresses, leaf first.
    pub fn stack(&self) -> &[usize] {
        stack_of(&self.stack0)
    }

    fn write(&mut self, count: MemCount) {
        let size = count.size as i64;
        self.alloc_objects = count.allocs;
        self.free_objects = count.frees;
        self.alloc_bytes = count.allocs.wrapping_mul(size);
        self.free_bytes = count.frees.wrapping_mul(size);
        write_stack(&mut self.stack0, &count.stack);
    }
}

/// Returns a profile of memory allocated and freed per call stack, the newest first. Go: `runtime.MemProfile`.
///
/// With `inuse_zero` it includes stacks whose objects have all been freed.
///
/// Every call is a consistent cut at its moment: it includes what was allocated and freed before, and nothing that
/// happens later. In a program that calls `collector::cycle` it is the last complete cut instead, up to two cycles old,
/// so that objects waiting to be collected do not count as in use.
///
/// The numbers are those of the samples. The objects of a record all have one size s, `alloc_bytes / alloc_objects`,
/// and each stands for 1 / (1 - e^(-s/rate)) objects. A written profile is already scaled, also where the rate was
/// changed between samples, which a record does not show.
pub fn mem_profile(inuse_zero: bool) -> Vec<MemProfileRecord> {
    let published = PublishedProfile::take();
    let mut records = Vec::with_capacity(shown(&published, inuse_zero).count());
    for count in shown(&published, inuse_zero) {
        let mut record = MemProfileRecord::default();
        record.write(count);
        records.push(record);
    }
    records
}

/// Writes the records of [`mem_profile`] into `records`. Returns the number of records, and whether they fitted; if
/// `records` is too short nothing is written. Go: `runtime.MemProfile`'s `(n, ok)`.
pub fn mem_profile_into(records: &mut [MemProfileRecord], inuse_zero: bool) -> (usize, bool) {
    let published = PublishedProfile::take();
    let n = shown(&published, inuse_zero).count();
    if n > records.len() {
        return (n, false);
    }
    for (record, count) in records.iter_mut().zip(shown(&published, inuse_zero)) {
        record.write(count);
    }
    (n, true)
}

fn shown(published: &PublishedProfile, inuse_zero: bool) -> impl Iterator<Item = MemCount> {
    published.iter().filter(move |count| inuse_zero || count.allocs != count.frees)
}
