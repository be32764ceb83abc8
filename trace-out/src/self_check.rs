//! Checks of traces while they are written. For the tests of rtprof's repository.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use rtprof_tracer::generation::{Generation, Tables};

use crate::encode::Encode;
use crate::options::Format;

/// Called with each event of a trace in the first format: its P, its tick, its number on the wire and its arguments;
/// and with `None` at the end. Panics if the event may not follow the events before it.
pub type EventCheck = Box<dyn FnMut(Option<(u64, u64, u8, &[u64])>) + Send + Sync>;

static MAKE: OnceLock<fn() -> EventCheck> = OnceLock::new();

/// Checks the events of each trace from now on with the function that `make` returns for it. Only the first call has an
/// effect.
pub fn check_events_with(make: fn() -> EventCheck) {
    let _ = MAKE.set(make);
}

pub(crate) fn start() -> Option<EventCheck> {
    #[cfg(test)]
    let _ = MAKE.set(rtprof_trace_check::event_check);
    MAKE.get().map(|make| make())
}

static WANTS_OTHERS: AtomicBool = AtomicBool::new(false);
static OTHERS: Mutex<Vec<(Format, Vec<u8>)>> = Mutex::new(Vec::new());

/// Whether traces that begin from now on are also encoded in the other formats.
pub fn want_other_formats(wanted: bool) {
    WANTS_OTHERS.store(wanted, Relaxed);
}

/// Takes the other formats of the last trace, which is over. Empty if they were not wanted.
pub fn take_other_formats() -> Vec<(Format, Vec<u8>)> {
    std::mem::take(&mut OTHERS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The same trace in other formats.
#[derive(Default)]
pub(crate) struct Others(Vec<(Format, Box<dyn Encode + Send + Sync>, Vec<u8>)>);

impl Others {
    /// Begins a trace in all formats but `format`, with encoders from `make`.
    pub(crate) fn begin(format: Format, make: impl Fn(Format) -> Box<dyn Encode + Send + Sync>) -> Self {
        if !WANTS_OTHERS.load(Relaxed) {
            return Self::default();
        }
        let others = Format::ALL.iter().copied().filter(|&other| other != format);
        Self(
            others
                .map(|other| {
                    let (mut encoder, mut bytes) = (make(other), Vec::new());
                    encoder.begin(&mut bytes);
                    (other, encoder, bytes)
                })
                .collect(),
        )
    }

    pub(crate) fn generation(&mut self, generation: &Generation<'_>, tables: &dyn Tables) {
        for (_, encoder, bytes) in &mut self.0 {
            encoder.generation(generation, tables, bytes);
        }
    }

    pub(crate) fn end_generation(&mut self, tables: &dyn Tables) {
        for (_, encoder, bytes) in &mut self.0 {
            encoder.end_generation(tables, bytes);
        }
    }

    pub(crate) fn end(&mut self, tick: u64, tables: &dyn Tables) {
        let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
        others.clear();
        for (format, mut encoder, mut bytes) in self.0.drain(..) {
            encoder.end(tick, tables, &mut bytes);
            others.push((format, bytes));
        }
    }
}
