//! The order in which contenders take their turns.

/// The orders of successive rounds. The first contender changes with every round, and every second round goes
/// backwards, so that no contender always follows the same neighbour.
pub(crate) struct Order {
    contenders: usize,
    rounds: usize,
}

impl Order {
    pub(crate) fn of(contenders: usize) -> Self {
        Self { contenders, rounds: 0 }
    }

    /// Returns the indices of all contenders, each once.
    pub(crate) fn next_round(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (all, round) = (self.contenders, self.rounds);
        self.rounds += 1;
        (0..all).map(move |step| {
            let place = (round + step) % all;
            if round.is_multiple_of(2) { place } else { all - 1 - place }
        })
    }
}
