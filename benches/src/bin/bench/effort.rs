//! The amounts of measurement.

/// The sizes of a run.
pub(crate) struct Effort {
    /// Its name, for the heading.
    pub(crate) name: &'static str,
    /// Whether other projects' allocators and profilers take part.
    pub(crate) peers: bool,
    /// How often new processes of the allocation subjects are started. A process keeps the addresses that it got by
    /// chance, so a single process per contender would measure that chance.
    pub(crate) generations: usize,
    /// Rounds in the life of one process, for each case.
    pub(crate) rounds: usize,
    /// Processes for the parts that compare within one process, and rounds in each.
    pub(crate) parts: usize,
    pub(crate) part_rounds: usize,
    /// Processes with events at a steady pace, and rounds in each.
    pub(crate) load_processes: usize,
    pub(crate) load_rounds: usize,
    /// Processes for uncontended locks, and rounds in each for every copy of the loop.
    pub(crate) lock_processes: usize,
    pub(crate) lock_rounds: usize,
    /// Processes whose threads wait for each other, and rounds in each.
    pub(crate) wait_processes: usize,
    pub(crate) wait_rounds: usize,
    /// Processes whose calls are measured with and without recorded waits, and rounds in each.
    pub(crate) interpose_processes: usize,
    pub(crate) interpose_rounds: usize,
    /// Kinds of build of each service, processes of each, rounds in each, and milliseconds of load in one. Many processes:
    /// those of one build differ by up to a tenth, by the places of their pages in memory.
    pub(crate) adopter_builds: usize,
    pub(crate) adopter_processes: usize,
    pub(crate) adopter_rounds: usize,
    pub(crate) adopter_millis: u64,
    /// Numbers of records to export, each with the number of processes to do it in.
    pub(crate) exports: &'static [(usize, usize)],
    /// Exports after the first in each process.
    pub(crate) warm_exports: usize,
    /// Snapshots of all threads, for each number of them.
    pub(crate) snapshots: usize,
    /// Stretches of a tokio service with a trace, and as many without.
    pub(crate) service_rounds: usize,
    /// How often the large heap is grown.
    pub(crate) heaps: usize,
    /// Rounds of a service's requests, with and without a server beside it, and seconds of each.
    pub(crate) http_rounds: usize,
    pub(crate) http_seconds: usize,
    /// Seconds in which a busy program's server rests, until its answers have their share of a core again.
    pub(crate) http_rest: u64,
    /// Scrapes after the first.
    pub(crate) scrapes: usize,
    /// Seconds of a storm of clients.
    pub(crate) storm_seconds: usize,
    /// Processes that record traces, and rounds in each.
    pub(crate) trace_processes: usize,
    pub(crate) trace_rounds: usize,
    /// Processes with a pool of workers, rounds in each, and milliseconds of one.
    pub(crate) pool_processes: usize,
    pub(crate) pool_rounds: usize,
    pub(crate) pool_millis: usize,
    /// Starts and stops of traces.
    pub(crate) sessions: usize,
    /// How often full buffers are read, and in how many processes.
    pub(crate) drains: usize,
    /// Long traces, and flight recorders, each in a separate process; milliseconds of a flight recorder.
    pub(crate) long_traces: usize,
    pub(crate) flight_millis: usize,
    /// Stretches of sampled time, and milliseconds of one.
    pub(crate) cpu_stretches: usize,
    pub(crate) cpu_millis: usize,
    /// Processes that are sampled while they compute, and rounds in each.
    pub(crate) cpu_processes: usize,
    pub(crate) cpu_rounds: usize,
}

impl Effort {
    /// The run whose table is worth keeping.
    pub(crate) const FULL: Self = Self {
        name: "full",
        peers: true,
        generations: 6,
        rounds: 50,
        parts: 20,
        part_rounds: 15,
        load_processes: 4,
        load_rounds: 5,
        lock_processes: 5,
        lock_rounds: 4,
        wait_processes: 7,
        wait_rounds: 15,
        interpose_processes: 5,
        interpose_rounds: 10,
        adopter_builds: 2,
        adopter_processes: 20,
        adopter_rounds: 3,
        adopter_millis: 100,
        exports: &[(1_000, 7), (10_000, 7), (100_000, 5)],
        warm_exports: 12,
        snapshots: 60,
        service_rounds: 30,
        heaps: 5,
        http_rounds: 5,
        http_seconds: 4,
        http_rest: 60,
        scrapes: 20,
        storm_seconds: 60,
        trace_processes: 8,
        trace_rounds: 15,
        pool_processes: 1,
        pool_rounds: 5,
        pool_millis: 1_100,
        sessions: 20,
        drains: 5,
        long_traces: 3,
        flight_millis: 12_000,
        cpu_stretches: 5,
        cpu_millis: 4_000,
        cpu_processes: 4,
        cpu_rounds: 12,
    };

    /// The run that shows that everything works, and roughly what it costs.
    pub(crate) const QUICK: Self = Self {
        name: "quick: a smoke run, its figures are rough",
        peers: false,
        generations: 2,
        rounds: 12,
        parts: 3,
        part_rounds: 7,
        load_processes: 1,
        load_rounds: 1,
        lock_processes: 2,
        lock_rounds: 1,
        wait_processes: 2,
        wait_rounds: 4,
        interpose_processes: 1,
        interpose_rounds: 4,
        adopter_builds: 1,
        adopter_processes: 1,
        adopter_rounds: 2,
        adopter_millis: 50,
        exports: &[(1_000, 1), (10_000, 2), (100_000, 1)],
        warm_exports: 3,
        snapshots: 15,
        service_rounds: 3,
        heaps: 1,
        http_rounds: 1,
        http_seconds: 2,
        http_rest: 3,
        scrapes: 3,
        storm_seconds: 4,
        trace_processes: 2,
        trace_rounds: 5,
        pool_processes: 1,
        pool_rounds: 1,
        pool_millis: 300,
        sessions: 5,
        drains: 1,
        long_traces: 1,
        flight_millis: 2_000,
        cpu_stretches: 1,
        cpu_millis: 1_000,
        cpu_processes: 1,
        cpu_rounds: 4,
    };
}
