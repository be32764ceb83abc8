//! What a goroutine does, and where: its state and its stacks, as texts have them.

use std::collections::HashSet;

use rtprof_profiler::GoroutineState;
use rtprof_runtime::snapshot::{KernelState, Recorded};
use rtprof_runtime::stack::Stack;
use rtprof_symbols::locations::Locations;

use crate::called_wait;
use crate::text::cut;

/// Returns the stack of the goroutine itself.
pub(crate) fn own_stack(goroutine: &Recorded) -> Stack<'_> {
    Stack { addresses: &goroutine.stack, span: goroutine.span }
}

/// Returns the state, and for a thread in a system call what it waits for there, if that is known.
pub(crate) fn state(goroutine: &Recorded, locations: &mut Locations) -> GoroutineState {
    match GoroutineState::from(goroutine.state) {
        GoroutineState::Syscall => called_wait::reason(own_stack(goroutine), locations)
            .map_or(GoroutineState::Syscall, GoroutineState::Waiting),
        state => state,
    }
}

/// Returns the stacks of a task beside its own, one for each place in the program's code. A future of a library may register
/// its waker several times, as tokio's sockets do, and a `select!` polls each of its branches at one place.
pub(crate) fn distinct_branches(goroutine: &Recorded, locations: &mut Locations) -> Vec<Stack<'static>> {
    let mut places: HashSet<_> = locations.event(own_stack(goroutine)).program_place().into_iter().collect();
    let mut is_new = |branch: &Stack<'_>| {
        locations.event(*branch).program_place().is_none_or(|place| places.insert(place))
    };
    goroutine.branches.iter().copied().filter(|branch| is_new(branch)).collect()
}

/// Returns `D in io_schedule`: the letter of proc(5), and the function of the kernel.
pub(crate) fn kernel_state(kernel: &KernelState) -> String {
    let state = kernel.state;
    if kernel.waits_in.is_empty() {
        state.to_string()
    } else {
        format!("{state} in {}", plain(&kernel.waits_in))
    }
}

/// Removes the characters that would end the header for a reader, or one of its parts.
pub(crate) fn plain(part: &str) -> String {
    cut(part).chars().filter(|c| !matches!(c, '(' | ')' | '[' | ']' | ',' | '"') && !c.is_control()).collect()
}
