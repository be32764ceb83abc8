//! Counts of what the profiler could not record, by reason, so that a profile can report them.

use core::sync::atomic::{AtomicU64, Ordering};

/// A count.
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

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A profile that a count concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedProfile {
    /// The heap and allocs profiles.
    Heap,
    /// The block profile.
    Block,
    /// The mutex profile.
    Mutex,
    /// The threadcreate profile.
    ThreadCreate,
    /// The goroutine profile.
    Goroutine,
    /// The CPU profile.
    Cpu,
}

use CountedProfile::{Block, Cpu, Goroutine, Heap, Mutex, ThreadCreate};

/// Profiles that count events.
const EVENTS: &[CountedProfile] = &[Heap, Block, Mutex, ThreadCreate, Cpu];
/// Profiles with stacks.
const ALL: &[CountedProfile] = &[Heap, Block, Mutex, ThreadCreate, Goroutine, Cpu];
/// Profiles of waits.
const WAITS: &[CountedProfile] = &[Block, Mutex];
/// No profile: the records of each show how many of its own are concerned.
const RECORDS_SHOW: &[CountedProfile] = &[];
/// Profiles whose samples carry labels.
const LABELLED: &[CountedProfile] = &[Heap, Block, Mutex, Goroutine, Cpu];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident of $subjects:expr, $sentence:literal;)*) => {
        /// All counts of this process.
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        /// The counts that hooks add to.
        pub static COUNTERS: Counters = Counters { $($name: Counter::new(),)* };

        impl Counters {
            /// Returns a sentence for each count that is not zero and concerns this profile. A count that concerns
            /// several profiles is the total over all of them.
            pub fn sentences(&self, subject: CountedProfile) -> Vec<String> {
                let mut out = Vec::new();
                $(if self.$name.get() > 0 && $subjects.contains(&subject) {
                    out.push(format!(concat!("rtprof: {} ", $sentence), self.$name.get()));
                })*
                out
            }

            /// Returns a sentence for each count that is not zero.
            pub fn all_sentences(&self) -> Vec<String> {
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
    /// Heap samples beyond the limit on distinct stacks.
    samples_over_stack_limit of &[Heap],
        "samples were beyond the limit on distinct stacks and stand under too_many_distinct_stacks; raise it with set_max_stacks";
    /// Waits beyond the number of distinct stacks that the block and mutex profiles keep.
    waits_over_stack_limit of WAITS,
        "waits were beyond the 65536 distinct stacks that the block and mutex profiles keep each, and stand under too_many_distinct_stacks";
    /// Threads beyond the number of distinct stacks that the threadcreate profile keeps.
    threads_over_stack_limit of &[ThreadCreate],
        "threads were created beyond the 16384 distinct stacks that the threadcreate profile keeps, and stand under too_many_distinct_stacks";
    /// CPU samples beyond the number of distinct stacks that a profile keeps.
    cpu_samples_over_stack_limit of &[Cpu],
        "CPU samples were beyond the 65536 distinct stacks that a profile keeps, and stand under too_many_distinct_stacks";
    /// Samples that found no memory for a bucket.
    samples_without_bucket of EVENTS,
        "samples were dropped: no memory for their records (address-space limit?)";
    /// Samples that were due in a signal handler that had interrupted a hook.
    samples_in_interrupted_hooks of &[Heap],
        "allocations were to be sampled but were not: made by a signal handler that had interrupted the profiler";
    /// Samples that found neither room on the stack nor a free spare stack.
    samples_without_room of ALL,
        "samples were dropped or have no stack: too little of the program's stack was left, and no spare stack free";
    /// Sampled objects that found no place in the pool.
    samples_without_pool of &[Heap],
        "objects were to be sampled but were not: the pool of sampled objects is full or got no memory (address-space limit?)";
    /// Sampled large objects that found no place in the table.
    samples_without_table of &[Heap],
        "large objects were to be sampled but were not: no memory for the table that finds them again";
    /// Stacks of which only the innermost frames were kept.
    stacks_truncated of RECORDS_SHOW,
        "stacks were deeper than 128 frames; their outermost frames are missing";
    /// Stacks that could not be walked.
    stacks_not_captured of RECORDS_SHOW,
        "stacks could not be walked (no unwind cache free, or just switched?) and stand under stack_not_captured";
    /// Frame-pointer walks that were broken and replaced by unwinding.
    stacks_repaired of ALL,
        "stacks were broken for frame pointers (C code in between?) and were unwound by tables instead";
    /// Changes of the rate beyond the number of distinct rates.
    rates_approximated of &[Heap],
        "changes of the heap profile rate were beyond 64 distinct rates and took the nearest one used before";
    /// Label sets beyond the number that enters profiles.
    label_sets_over_limit of LABELLED,
        "times a label set beyond 1024 distinct ones was set; its samples stand under labels=overflow";
    /// Threads and tasks that got no slot in the registry of goroutines.
    goroutines_not_followed of &[ThreadCreate, Goroutine],
        "times a thread or task could not be registered as a goroutine: no memory, too many of them, or no key for the end of threads";
    /// Awaits beyond the number of distinct stacks that are stored.
    task_stacks_over_limit of &[Goroutine, Block],
        "times a task awaited at a stack beyond the 65536 distinct ones that are kept, which is not in profiles";
    /// CPU samples in tasks beyond the number of distinct names that a profile keeps.
    task_names_over_limit of &[Cpu],
        "CPU samples are without the label task: a profile keeps 1024 distinct names of tasks";
    /// Snapshots of goroutines for which the kernel granted no memory.
    goroutines_without_memory of &[Goroutine],
        "times goroutines could not be recorded: no memory (address-space limit?)";
    /// Snapshots of goroutines that would have waited for themselves.
    goroutines_asked_within of &[Goroutine],
        "snapshots of goroutines were asked for within another by the same thread (the program's allocator?) and are empty";
    /// Frees of pooled memory that was not in use: a double free in the program.
    invalid_frees of &[Heap],
        "frees of sampled objects that were already free (a bug in this program)";
}
