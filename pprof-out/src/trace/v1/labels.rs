//! Labels of a goroutine's thread, which its slices show; and the name that it gives itself.

use rtprof_profiler::labels::{self, LabelSetId};
use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::{StringId, cut};

use super::events::Events;

impl Events {
    /// A goroutine that was created without a name has this one.
    pub(super) fn rename(&mut self, place: u32, name: StringId) {
        if let Some(known_by) = self.goroutines.name(place) {
            self.names.late.give(known_by, name);
        }
    }

    /// The id of what the next start of a goroutine shows; 0 if nothing.
    ///
    /// The newest Go shows a label from then on. So one that is over is replaced by the goroutine's name.
    pub(super) fn label(&mut self, place: u32, set: LabelSetId, tables: &dyn Tables) -> u64 {
        let goroutine = &mut self.goroutines[place];
        let was_labelled = std::mem::replace(&mut goroutine.is_labelled, set != LabelSetId::NONE);
        if set != LabelSetId::NONE {
            let pairs: Vec<_> =
                labels::resolve(set).iter().map(|(key, value)| format!("{key}={value}")).collect();
            return self.names.text(cut(&pairs.join(" ")));
        }
        if was_labelled { self.names.name_of(goroutine.name, tables) } else { 0 }
    }
}
