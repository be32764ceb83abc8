//! What the profiler could not keep, counted by reason, so that a profile can say so.

use core::sync::atomic::{AtomicU64, Ordering};

/// One count.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    #[inline]
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $sentence:literal,)*) => {
        /// All counts of this process.
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        /// The counts that hooks add to.
        pub static COUNTERS: Counters = Counters { $($name: Counter::new(),)* };

        impl Counters {
            /// A sentence for each count that is not zero, for the comments of a profile.
            pub fn sentences(&self) -> Vec<String> {
                let mut out = Vec::new();
                $(if self.$name.get() > 0 {
                    out.push(format!(concat!("rtprof: {} ", $sentence), self.$name.get()));
                })*
                out
            }
        }
    };
}

counters! {
    /// Samples beyond the limit on distinct stacks.
    samples_over_stack_limit: "samples were beyond the limit on distinct stacks and stand under too_many_distinct_stacks; raise it with set_max_stacks",
    /// Samples that found no memory for a bucket.
    samples_without_bucket: "samples were dropped: no memory for their records (address-space limit?)",
    /// Sampled objects that found no place in the pool.
    samples_without_pool: "objects were to be sampled but were not: the pool of sampled objects is full or could not be reserved (address-space limit?)",
    /// Sampled large objects that found no place in the table.
    samples_without_table: "large objects were to be sampled but were not: no memory for the table that finds them again",
    /// Stacks of which only the innermost frames were kept.
    stacks_truncated: "stacks were deeper than 128 frames; their outermost frames are missing",
    /// Stacks that could not be walked.
    stacks_not_captured: "stacks could not be walked (no unwind cache free or too little stack left) and stand under stack_not_captured",
    /// Frame-pointer walks that were broken and replaced by unwinding.
    stacks_repaired: "stacks were broken for frame pointers (C code in between?) and were unwound by tables instead",
    /// Changes of the rate beyond the number of distinct rates.
    rates_approximated: "changes of the heap profile rate were beyond 64 distinct rates and took the nearest one used before",
    /// Label sets beyond the number that enters profiles.
    label_sets_over_limit: "times a label set beyond 1024 distinct ones was set; its samples stand under labels=overflow",
    /// Frees of pooled memory that was not in use: a double free in the program.
    invalid_frees: "frees of sampled objects that were already free (a bug in this program)",
}

/// Every count that is not zero, as sentences; and what else a reader of an empty profile should know.
pub fn comments() -> Vec<String> {
    let mut sentences = COUNTERS.sentences();
    if crate::mem::stacks_in_use().0 == 0 && crate::rate::mem_profile_rate() != 0 {
        sentences.push(
            "rtprof: no allocation was sampled yet; if the program has allocated more than a few MiB, check \
             that a ProfAlloc is its #[global_allocator]"
                .to_owned(),
        );
    }
    sentences
}
