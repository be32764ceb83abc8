//! What the reader has taken out of the recorder.

use std::collections::HashMap;

use crate::buffer::Buffer;
use crate::generation::{Buffered, Generation, LaneRecords};
use crate::record::Records;
use crate::tables::View;
use crate::thread::RECORDER;

/// A generation, as it was cut. Its buffers are free again when this is dropped.
pub struct Collected<'a> {
    pub(crate) tables: &'a View,
    pub(crate) buffers: Vec<&'static Buffer>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Collected<'_> {
    /// The stacks and strings that its records name, and those of all generations before it.
    pub fn tables(&self) -> &View {
        self.tables
    }

    /// What is in it.
    pub fn generation(&self) -> Generation<'_> {
        let mut places = HashMap::new();
        let mut lanes: Vec<LaneRecords<'_>> = Vec::new();
        for buffer in &self.buffers {
            // SAFETY: out of the queue: nobody writes to it until it is given back, by the drop of this.
            let body = buffer.body.with_mut(|body| unsafe { &*body });
            // Those outside threads are several, each in its order.
            let place = *places.entry((body.thread, body.thread_id)).or_insert(lanes.len());
            if place == lanes.len() {
                let (thread, thread_id) = (body.thread, body.thread_id);
                lanes.push(LaneRecords { thread, thread_id, is_over: false, buffers: Vec::new() });
            }
            let lane = &mut lanes[place];
            lane.is_over |= body.is_over;
            lane.buffers.push(Buffered {
                goroutine: body.goroutine,
                is_after_loss: body.is_after_loss,
                records: Records::new(body.base, body.records()),
            });
        }
        Generation { begin: self.begin, end: self.end, lanes }
    }
}

impl Drop for Collected<'_> {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            RECORDER.buffers.give_back(buffer);
        }
    }
}
