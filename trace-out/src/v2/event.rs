//! The events of the second format that are written, with their numbers on the wire. Go: `internal/trace/tracev2`.
//!
//! Arguments are listed in the order of the wire, without the time.

/// The type of an event, or of another record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventType {
    /// Begins a batch. Arguments: generation, m, time, size; then so many bytes.
    EventBatch = 1,
    /// Begins a batch of stacks.
    Stacks = 2,
    /// A stack; for each frame follow PC, function, file and line. Arguments: id, frames.
    Stack = 3,
    /// Begins a batch of strings.
    Strings = 4,
    /// A string; its bytes follow. Arguments: id, len.
    String = 5,
    /// Begins a batch of CPU samples.
    CpuSamples = 6,
    /// A CPU sample. Arguments: time, m, p, g, stack.
    CpuSample = 7,
    /// Ticks per second. Arguments: freq.
    Frequency = 8,
    /// The number of Ps. Arguments: procs, stack.
    ProcsChange = 9,
    /// A P begins to run. Arguments: p, seq.
    ProcStart = 10,
    /// The P stops. Arguments: none.
    ProcStop = 11,
    /// The state of a P. Arguments: p, status.
    ProcStatus = 13,
    /// A goroutine is created. Arguments: g, newstack, stack.
    GoCreate = 14,
    /// A goroutine starts to run. Arguments: g, seq.
    GoStart = 16,
    /// The goroutine ends. Arguments: none.
    GoDestroy = 17,
    /// The goroutine stops, but can run. Arguments: reason, stack.
    GoStop = 19,
    /// The goroutine blocks. Arguments: reason, stack.
    GoBlock = 20,
    /// A goroutine can run again. Arguments: g, seq, stack.
    GoUnblock = 21,
    /// The goroutine enters a system call. Arguments: pseq, stack.
    GoSyscallBegin = 22,
    /// The goroutine has left a system call with its P. Arguments: none.
    GoSyscallEnd = 23,
    /// The goroutine has left a system call in which it has lost its P. Arguments: none.
    GoSyscallEndBlocked = 24,
    /// The state of a goroutine. Arguments: g, m, status.
    GoStatus = 25,
    /// The goroutine stops the world. Arguments: kind, stack.
    StwBegin = 26,
    /// The world goes on. Arguments: none.
    StwEnd = 27,
    /// A collection is in progress. Arguments: seq.
    GcActive = 28,
    /// A collection begins. Arguments: seq, stack.
    GcBegin = 29,
    /// The collection is over. Arguments: seq.
    GcEnd = 30,
    /// A P sweeps. Arguments: p.
    GcSweepActive = 31,
    /// The P begins to sweep. Arguments: stack.
    GcSweepBegin = 32,
    /// The P has swept, in bytes. Arguments: swept, reclaimed.
    GcSweepEnd = 33,
    /// A goroutine helps the collector. Arguments: g.
    GcMarkAssistActive = 34,
    /// The goroutine begins to help the collector. Arguments: stack.
    GcMarkAssistBegin = 35,
    /// The goroutine has helped the collector. Arguments: none.
    GcMarkAssistEnd = 36,
    /// Bytes of the heap that are in use. Arguments: bytes.
    HeapAlloc = 37,
    /// Bytes at which the next collection begins. Arguments: bytes.
    HeapGoal = 38,
    /// A label of the goroutine. Arguments: label.
    GoLabel = 39,
    /// A task begins. Arguments: task, parent, name, stack.
    UserTaskBegin = 40,
    /// A task ends. Arguments: task, stack.
    UserTaskEnd = 41,
    /// A region begins. Arguments: task, name, stack.
    UserRegionBegin = 42,
    /// A region ends. Arguments: task, name, stack.
    UserRegionEnd = 43,
    /// A message. Arguments: task, key, value, stack.
    UserLog = 44,
    /// Like `GoStatus`, with a stack that names the goroutine. Arguments: g, m, status, stack.
    GoStatusStack = 48,
    /// Begins a batch with the clock: its frequency and a snapshot.
    Sync = 50,
    /// The same moment on several clocks. Arguments: mono, sec, nsec.
    ClockSnapshot = 51,
    /// Ends a generation.
    EndOfGeneration = 52,
}

/// The states of `ProcStatus`.
pub(super) mod proc_status {
    pub(crate) const RUNNING: u64 = 1;
    pub(crate) const IDLE: u64 = 2;
    pub(crate) const SYSCALL: u64 = 3;
}

/// The states of `GoStatus`.
pub(super) mod go_status {
    pub(crate) const RUNNABLE: u64 = 1;
    pub(crate) const RUNNING: u64 = 2;
    pub(crate) const SYSCALL: u64 = 3;
    pub(crate) const WAITING: u64 = 4;
}

/// The M of a batch that belongs to no thread.
pub(super) const NO_THREAD: u64 = u64::MAX;

/// The most bytes in a batch.
pub(super) const BATCH: usize = 64 << 10;
