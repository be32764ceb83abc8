//! In what order contenders take their turns.

/// The order of one round after the other. Who begins moves on with every round, and every second round goes
/// backwards, so that nobody always follows the same neighbour.
pub(crate) struct Order {
    contenders: usize,
    rounds: usize,
}

impl Order {
    pub(crate) fn of(contenders: usize) -> Self {
        Self { contenders, rounds: 0 }
    }

    /// Every contender's place once.
    pub(crate) fn next_round(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (all, round) = (self.contenders, self.rounds);
        self.rounds += 1;
        (0..all).map(move |step| {
            let place = (round + step) % all;
            if round.is_multiple_of(2) { place } else { all - 1 - place }
        })
    }
}
