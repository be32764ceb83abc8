//! Names of goroutines, and the labels of their threads, which their slices show.

use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::{NAMED_LATER, StringId, cut};

use super::changes::Schedule;
use super::goroutines::Begun;
use super::late_names::{LateNames, given_in};
use super::procs::Wire;
use super::writing::Writing;

impl<W: Wire> Writing<'_, W> {
    /// Returns the name of a goroutine from its creation on.
    pub(super) fn name_of(&mut self, begun: Begun) -> StringId {
        if begun.name != NAMED_LATER {
            return begun.name;
        }
        let given = self.given.get_or_insert_with(|| given_in(self.generation)).get(&begun.goroutine);
        given.copied().unwrap_or_else(|| self.schedule.names.late(begun.created_by))
    }
}

impl<W: Wire> Schedule<W> {
    /// Names a goroutine that was created without a name.
    pub(super) fn rename(&mut self, index: u32, name: StringId) {
        if self.goroutines.name(index).is_some_and(|name| LateNames::index(name).is_some()) {
            self.goroutines[index].name = name;
        }
    }

    /// Returns the id of the label that the next start of a goroutine shows; 0 for none.
    ///
    /// The newest Go shows a label from then on. So a label that no longer applies is replaced by the goroutine's name.
    pub(super) fn label(&mut self, index: u32, set: LabelSetId, tables: &dyn Tables) -> u64 {
        let goroutine = &mut self.goroutines[index];
        let was_labelled = std::mem::replace(&mut goroutine.is_labelled, set != LabelSetId::NONE);
        if set != LabelSetId::NONE {
            let pairs: Vec<_> =
                labels::resolve(set).iter().map(|(key, value)| format!("{key}={value}")).collect();
            return self.names.text(cut(&pairs.join(" ")));
        }
        if was_labelled { self.names.name_of(goroutine.name, tables) } else { 0 }
    }
}
