//! Which goroutines a dump has.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rtprof_profiler::GoroutineState;
use rtprof_runtime::snapshot::Recorded;
use rtprof_symbols::locations::Locations;

use crate::goroutine_state::own_stack;

/// Which goroutines are written ([`Snapshot::with_goroutines`](crate::Snapshot::with_goroutines)).
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct GoroutineFilter {
    /// The states of the goroutines to write, in the words of the dump: `await`, `chan receive`. Empty for all states.
    pub states: Vec<String>,
    /// Says whether a name counts. It is asked about the name of the thread or the task, of a function of the stack,
    /// and of the function's source file.
    pub show: Option<Matches>,
}

/// Whether a name counts.
type Matches = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A filter in use.
#[derive(Default)]
pub(crate) struct Selection<'a> {
    filter: Option<&'a GoroutineFilter>,
    /// Whether texts that were asked about count, by their addresses: the functions of all stacks are few.
    asked: HashMap<*const u8, bool>,
}

impl<'a> Selection<'a> {
    pub(crate) fn by(filter: Option<&'a GoroutineFilter>) -> Self {
        Self { filter, asked: HashMap::new() }
    }

    pub(crate) fn has(
        &mut self,
        goroutine: &Recorded,
        state: GoroutineState,
        locations: &mut Locations,
    ) -> bool {
        let Some(GoroutineFilter { states, show }) = self.filter else { return true };
        let state = state.to_string();
        if !states.is_empty() && !states.iter().any(|wanted| wanted.eq_ignore_ascii_case(&state)) {
            return false;
        }
        let Some(show) = show else { return true };
        let mut counts = |text: &Arc<str>| *self.asked.entry(text.as_ptr()).or_insert_with(|| show(text));
        let mut has = |stack| {
            let frames = locations.event_from_leaf(stack);
            let mut lines = frames.shown().flat_map(|(_, lines)| lines);
            lines.any(|line| counts(&line.function.name) || counts(&line.function.file))
        };
        show(goroutine.title())
            || has(own_stack(goroutine))
            || goroutine.branches.iter().any(|branch| has(*branch))
    }
}

impl fmt::Debug for GoroutineFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoroutineFilter").field("states", &self.states).finish_non_exhaustive()
    }
}
