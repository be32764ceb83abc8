//! The buffers that the drain has taken out of the recorder.

use std::collections::HashMap;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::generation::{Buffered, Generation, LaneRecords};
use crate::record::Records;
use crate::tables::View;
use crate::thread::RECORDER;

/// A generation, as it was cut. Its buffers are given back when this is dropped. Several encoders may read it at once.
pub struct Collected {
    pub(crate) tables: Arc<View>,
    pub(crate) buffers: Vec<&'static Buffer>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) closed: u64,
}

impl Collected {
    /// Returns the stacks and strings that the generation's records name, and those of all generations before it.
    pub fn tables(&self) -> &View {
        &self.tables
    }

    /// Returns the tick at which the generation ended.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the memory of its buffers.
    pub fn memory(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.size()).sum()
    }

    /// Returns how many buffers and records it has.
    pub fn counts(&self) -> (u64, u64) {
        // SAFETY: as in `generation`.
        let count = |buffer: &&Buffer| buffer.body.with(|body| unsafe { (*body).count });
        (self.buffers.len() as u64, self.buffers.iter().map(count).map(u64::from).sum())
    }

    /// Returns the generation's records, lane by lane.
    pub fn generation(&self) -> Generation<'_> {
        let mut places = HashMap::new();
        let mut lanes: Vec<LaneRecords<'_>> = Vec::new();
        for buffer in &self.buffers {
            // SAFETY: the buffer is out of the queue, and no thread writes to it until the drop of `self` gives it
            // back.
            let body = buffer.body.with(|body| unsafe { &*body });
            // There are several lanes outside threads, each with its own order.
            let place = *places.entry((body.own_goroutine, body.thread_id)).or_insert(lanes.len());
            if place == lanes.len() {
                let (goroutine, thread_id) = (body.own_goroutine, body.thread_id);
                lanes.push(LaneRecords { goroutine, thread_id, is_over: false, buffers: Vec::new() });
            }
            let lane = &mut lanes[place];
            lane.is_over |= body.is_over;
            lane.buffers.push(Buffered {
                goroutine: body.goroutine,
                is_after_loss: body.is_after_loss,
                records: Records::new(body.base, body.records()),
            });
        }
        Generation { begin: self.begin, end: self.end, closed: self.closed, lanes }
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            RECORDER.buffers.give_back(buffer);
        }
    }
}
