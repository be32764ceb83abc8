//! The events of the first trace format that are written, by their numbers on the wire. Go: `EvGoCreate` and the like.
//!
//! Arguments are listed in the order of the wire, without the time. The comments in Go's sources list some in another order.

/// The upper bits of a first byte that mean: a length follows, and then the values.
pub(super) const LENGTH_PREFIXED: u8 = 3;

/// The most bytes that may follow a length: more is refused by Go 1.22 and later.
pub(super) const MAX_LENGTH: u64 = 2048;

/// The P of a batch that belongs to no processor.
pub(super) const NO_PROC: u64 = u64::MAX;

/// The type of an event, or of another record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum EventType {
    /// Begins a batch: what follows is of this P, and its clock begins at `ticks`. Arguments: p, ticks.
    Batch = 1,
    /// Ticks per second. Arguments: freq.
    Frequency = 2,
    /// A stack; behind the two arguments follow four values a frame: PC, function, file, line. Arguments: id, siz.
    Stack = 3,
    /// How many Ps there are. Arguments: procs, stack.
    Gomaxprocs = 4,
    /// A P begins to run, on this thread. Arguments: thread.
    ProcStart = 5,
    /// A P stops. Arguments: none.
    ProcStop = 6,
    /// A collection begins. Arguments: seq, stack.
    GcStart = 7,
    /// A collection is over. Arguments: none.
    GcDone = 8,
    /// The world is being stopped; 0 for mark termination, 1 for sweep termination. Arguments: kindid.
    StwStart = 9,
    /// The world goes on. Arguments: none.
    StwDone = 10,
    /// This P begins to sweep. Arguments: stack.
    GcSweepStart = 11,
    /// This P has swept, in bytes. Arguments: swept, reclaimed.
    GcSweepDone = 12,
    /// A goroutine is created. Arguments: g, newstack, stack.
    GoCreate = 13,
    /// A goroutine starts to run. Arguments: g, seq.
    GoStart = 14,
    /// A goroutine ends. Arguments: none.
    GoEnd = 15,
    /// A goroutine lets others run. Arguments: stack.
    GoSched = 17,
    /// A goroutine sleeps. Arguments: stack.
    GoSleep = 19,
    /// A goroutine blocks, for no reason that is told. Arguments: stack.
    GoBlock = 20,
    /// A goroutine may run again. Arguments: g, seq, stack.
    GoUnblock = 21,
    /// A goroutine blocks as it sends on a channel. Arguments: stack.
    GoBlockSend = 22,
    /// A goroutine blocks as it receives from a channel. Arguments: stack.
    GoBlockRecv = 23,
    /// A goroutine blocks on several channels. Arguments: stack.
    GoBlockSelect = 24,
    /// A goroutine blocks on a lock. Arguments: stack.
    GoBlockSync = 25,
    /// A goroutine blocks on a condition variable. Arguments: stack.
    GoBlockCond = 26,
    /// A goroutine blocks on the network. Arguments: stack.
    GoBlockNet = 27,
    /// A goroutine enters a system call. Arguments: stack.
    GoSysCall = 28,
    /// A goroutine has left a system call that blocked; `ts` is when, 0 for now. Arguments: g, seq, ts.
    GoSysExit = 29,
    /// The system call that a goroutine is in blocks. Arguments: none.
    GoSysBlock = 30,
    /// Bytes of the heap that are in use. Arguments: mem.
    HeapAlloc = 33,
    /// Bytes at which the next collection begins. Arguments: mem.
    HeapGoal = 34,
    /// A string; its bytes follow. Arguments: id, len.
    String = 37,
    /// As `GoStart`, where the goroutine's last transition was on this P. Arguments: g.
    GoStartLocal = 38,
    /// As `GoUnblock`, where the goroutine's last transition was on this P. Arguments: g, stack.
    GoUnblockLocal = 39,
    /// As `GoStart`, with a label. Arguments: g, seq, labelid.
    GoStartLabel = 41,
    /// A goroutine begins to help the collector. Arguments: stack.
    GcMarkAssistStart = 43,
    /// A goroutine has helped the collector. Arguments: none.
    GcMarkAssistDone = 44,
    /// A task begins. Arguments: taskid, pid, typeid, stack.
    UserTaskCreate = 45,
    /// A task ends. Arguments: taskid, stack.
    UserTaskEnd = 46,
    /// A region begins, with mode 0, or ends, with mode 1. Arguments: taskid, mode, typeid, stack.
    UserRegion = 47,
    /// A message; it follows as a length and bytes. Arguments: id, keyid, stack.
    UserLog = 48,
    /// A sample of the processor profile. Arguments: ts, p, g, stack.
    CpuSample = 49,
}

impl EventType {
    /// Its number on the wire.
    #[inline]
    pub(super) const fn number(self) -> u8 {
        self as u8
    }

    /// The first byte of a record that is no event: its number, and how its values are laid out.
    pub(super) const fn first_byte(self) -> u8 {
        let layout = match self {
            Self::Stack => LENGTH_PREFIXED,
            // Two values, of which an event would have the time as the first.
            Self::Batch => 1,
            _ => 0,
        };
        self.number() | layout << 6
    }
}
