//! Object sizes and the small generator that draws them.

/// SplitMix64. The sequence is fixed, so every subject allocates the same sizes in the same order.
#[derive(Clone)]
pub struct Draw(u64);

impl Draw {
    /// Makes a generator that starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a log-uniform number in `[low, high]`: as many objects between 16 and 32 bytes as between 2 and 4 KiB,
    /// which is nearer to real programs than a uniform draw.
    pub fn log_uniform(&mut self, low: usize, high: usize) -> usize {
        let span = (high as f64 / low as f64).ln();
        let size = low as f64 * (self.unit() * span).exp();
        (size as usize).clamp(low, high)
    }
}

/// The sizes of the objects in a measured loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Every object has this many bytes.
    Fixed(usize),
    /// Log-uniform from 16 to 4096 bytes.
    Mixed,
}

impl Sizes {
    /// The number of sizes in a table; a power of two, so that the index wraps with a mask.
    pub const TABLE: usize = 4096;

    /// Returns a table of [`Sizes::TABLE`] sizes, to be drawn before the clock starts.
    pub fn table(self) -> Vec<usize> {
        let mut draw = Draw::new(0x5eed);
        (0..Self::TABLE)
            .map(|_| match self {
                Self::Fixed(size) => size,
                Self::Mixed => draw.log_uniform(16, 4096),
            })
            .collect()
    }

    /// Returns the probability that one of these objects is sampled at `rate` bytes, averaged over the table.
    pub fn sampling_probability(self, rate: usize) -> f64 {
        let table = self.table();
        let sum: f64 = table.iter().map(|&size| -(-(size as f64) / rate as f64).exp_m1()).sum();
        sum / table.len() as f64
    }

    /// Returns the word for a request: a number of bytes, or `mixed`.
    pub fn word(self) -> String {
        match self {
            Self::Fixed(size) => size.to_string(),
            Self::Mixed => "mixed".to_owned(),
        }
    }

    /// Parses the word that [`Sizes::word`] returns.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "mixed" => Some(Self::Mixed),
            number => number.parse().ok().map(Self::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_sizes_stay_in_range_and_spread() {
        let table = Sizes::Mixed.table();
        assert!(table.iter().all(|size| (16..=4096).contains(size)));
        let small = table.iter().filter(|&&size| size < 256).count();
        assert!((1900..2200).contains(&small), "half of a log-uniform draw lies below 256, got {small}");
    }

    #[test]
    fn probability_of_one_size() {
        let p = Sizes::Fixed(64).sampling_probability(65_536);
        assert!((p - 9.76e-4).abs() < 1e-6, "{p}");
    }

    #[test]
    fn words_read_back() {
        for sizes in [Sizes::Fixed(64), Sizes::Mixed] {
            assert_eq!(Sizes::parse(&sizes.word()), Some(sizes));
        }
    }
}
