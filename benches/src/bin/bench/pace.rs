//! How fast the machine is at present, by a yardstick that is measured in the same rounds.

use std::io;

use rtprof_benches::statistics::median;
use rtprof_benches::yardstick::Yardstick;

use crate::child::Child;

/// The yardstick of some rounds.
pub(crate) struct Pace {
    yardstick: Yardstick,
    /// Nanoseconds: one value per round.
    nanos: Vec<f64>,
}

impl Pace {
    /// Starts without a value.
    pub(crate) fn by(yardstick: Yardstick) -> Self {
        Self { yardstick, nanos: vec![] }
    }

    #[cfg(test)]
    pub(crate) fn of(yardstick: Yardstick, nanos: Vec<f64>) -> Self {
        Self { yardstick, nanos }
    }

    /// Measures the yardstick. Call in each round, with the program that does the round's work.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn measure(&mut self, child: &mut Child) -> io::Result<()> {
        let [nanos] = child.numbers(&format!("yardstick {}", self.yardstick.word()))?;
        self.nanos.push(nanos);
        Ok(())
    }

    /// Returns how many times as long it takes as on the machine on which the limits were set; NaN before the first round.
    pub(crate) fn slowdown(&self) -> f64 {
        median(&self.nanos) / self.yardstick.reference()
    }
}
