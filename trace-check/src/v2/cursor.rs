//! The events of one thread in a generation, one after the other. Go: `batchCursor`.

use crate::invalid::{Invalid, Violation};
use crate::record::Reader;

use super::generation::Batch;
use super::specs::Type;

/// An event with its time in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) event: Type,
    pub(super) tick: u64,
    pub(super) args: [u64; 4],
    pub(super) offset: usize,
}

/// What remains to be read of a thread.
pub(super) struct Cursor<'a> {
    pub(super) thread: u64,
    batches: std::vec::IntoIter<Batch<'a>>,
    current: Option<(Reader<'a>, usize)>,
    tick: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(thread: u64, batches: Vec<Batch<'a>>) -> Self {
        Self { thread, batches: batches.into_iter(), current: None, tick: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Option<Timed>, Invalid> {
        loop {
            let Some((reader, offset)) = &mut self.current else {
                let Some(batch) = self.batches.next() else { return Ok(None) };
                self.tick = batch.time;
                self.current = Some((Reader::new(batch.bytes, 0), batch.offset));
                continue;
            };
            let at = *offset + reader.position();
            let Some(number) = reader.byte() else {
                self.current = None;
                continue;
            };
            let Some(event) = Type::from_number(number) else {
                return Err(Violation::refused(format!("found invalid event type: {number}")).at(at));
            };
            let mut args = [0; 4];
            let mut read = |reader: &mut Reader<'a>| -> Result<u64, Violation> {
                let delta = reader.value()?;
                for (arg, _) in args.iter_mut().zip(event.spec().arguments) {
                    *arg = reader.value()?;
                }
                Ok(delta)
            };
            let delta = read(reader).map_err(|violation| violation.at(at))?;
            self.tick = self.tick.wrapping_add(delta);
            return Ok(Some(Timed { event, tick: self.tick, args, offset: at }));
        }
    }
}
