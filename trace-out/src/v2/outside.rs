//! The outside thread: events that need a P or a goroutine which their own lane does not have.

use crate::numbers::put_number;

use super::batch::Batch;
use super::event::{EventType as E, go_status};

/// The thread of events that belong to no thread, the first of those that stand in for others. The kernel's numbers are
/// smaller.
pub(super) const THREAD: u64 = 1 << 32;

/// The goroutine that runs on the outside thread. Viewers store ids as numbers of 53 bits.
const GOROUTINE: u64 = 1 << 41;

/// The events of the outside thread in this generation.
#[derive(Default)]
pub(super) struct Outside {
    /// Their ticks, and where they begin in `bytes`.
    events: Vec<(u64, usize)>,
    /// Number and arguments of each.
    bytes: Vec<u8>,
    goroutine: Goroutine,
}

/// Whether a goroutine runs on the outside thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Goroutine {
    #[default]
    None,
    /// Since this generation.
    New,
    /// Since an earlier one.
    Old,
}

impl Outside {
    /// Whether it has a goroutine.
    pub(super) fn has_goroutine(&self) -> bool {
        self.goroutine != Goroutine::None
    }

    /// Gives it a goroutine, from the beginning of the generation on.
    pub(super) fn needs_goroutine(&mut self) {
        if self.goroutine == Goroutine::None {
            self.goroutine = Goroutine::New;
        }
    }

    /// Adds an event. The first one of a generation must be the status of its P.
    pub(super) fn put<const N: usize>(&mut self, tick: u64, event: E, args: [u64; N]) {
        self.events.push((tick, self.bytes.len()));
        self.bytes.push(event as u8);
        for arg in args {
            put_number(&mut self.bytes, arg);
        }
    }

    /// Moves the events to the end of `out`, in the order of their ticks. `start` is the id of the stack that names the
    /// goroutine, and `has_named_status` says whether its status may have that stack.
    pub(super) fn close(&mut self, out: &mut Vec<u8>, generation: u64, start: u64, has_named_status: bool) {
        let Self { events, bytes, goroutine } = self;
        let ends: Vec<usize> = events.iter().skip(1).map(|&(_, at)| at).chain([bytes.len()]).collect();
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by_key(|&at| events[at].0);
        let mut batch = Batch::default();
        for (position, at) in order.into_iter().enumerate() {
            let (tick, from) = events[at];
            if !batch.has_room() {
                batch.close(out, generation, THREAD);
            }
            batch.put_encoded(tick, bytes[from], &bytes[from + 1..ends[at]]);
            if position > 0 {
                continue;
            }
            let status = go_status::RUNNING;
            match goroutine {
                Goroutine::None => {}
                Goroutine::New => {
                    batch.put(tick, E::GoCreate, [GOROUTINE, start, 0]);
                    batch.put(tick, E::GoStart, [GOROUTINE, 1]);
                }
                Goroutine::Old if has_named_status => {
                    batch.put(tick, E::GoStatusStack, [GOROUTINE, THREAD, status, start]);
                }
                Goroutine::Old => batch.put(tick, E::GoStatus, [GOROUTINE, THREAD, status]),
            }
        }
        batch.close(out, generation, THREAD);
        if *goroutine == Goroutine::New {
            *goroutine = Goroutine::Old;
        }
        events.clear();
        bytes.clear();
    }
}
