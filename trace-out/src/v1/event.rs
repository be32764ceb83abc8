//! The events of the first trace format that are written, with their numbers on the wire. Go: `EvGoCreate` and the
//! like.
//!
//! Arguments are listed in the order of the wire, without the time. The comments in Go's sources list some in another
//! order.

/// The upper bits of a first byte after which a length and then the values follow.
pub(super) const LENGTH_PREFIXED: u8 = 3;

/// The most bytes that may follow a length: Go 1.22 and later reject more.
pub(super) const MAX_LENGTH: u64 = 2048;

/// The P of a batch that belongs to no processor.
pub(super) const NO_PROC: u64 = u64::MAX;

/// The type of an event, or of another record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum EventType {
    /// Begins a batch of records of one P, whose clock begins at `ticks`. Arguments: p, ticks.
    Batch = 1,
    /// Ticks per second. Arguments: freq.
    Frequency = 2,
    /// A stack; after the two arguments follow four values for each frame: PC, function, file, line. Arguments: id,
    /// siz.
    Stack = 3,
    /// The number of Ps. Arguments: procs, stack.
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
    /// A goroutine yields. Arguments: stack.
    GoSched = 17,
    /// A goroutine sleeps. Arguments: stack.
    GoSleep = 19,
    /// A goroutine blocks, for an unspecified reason. Arguments: stack.
    GoBlock = 20,
    /// A goroutine can run again. Arguments: g, seq, stack.
    GoUnblock = 21,
    /// A goroutine blocks while it sends on a channel. Arguments: stack.
    GoBlockSend = 22,
    /// A goroutine blocks while it receives from a channel. Arguments: stack.
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
    /// A goroutine has left a system call that blocked; `ts` is the time, 0 for now. Arguments: g, seq, ts.
    GoSysExit = 29,
    /// The system call of a goroutine blocks. Arguments: none.
    GoSysBlock = 30,
    /// Bytes of the heap that are in use. Arguments: mem.
    HeapAlloc = 33,
    /// Bytes at which the next collection begins. Arguments: mem.
    HeapGoal = 34,
    /// A string; its bytes follow. Arguments: id, len.
    String = 37,
    /// Like `GoStart`, if the goroutine's last transition was on this P. Arguments: g.
    GoStartLocal = 38,
    /// Like `GoUnblock`, if the goroutine's last transition was on this P. Arguments: g, stack.
    GoUnblockLocal = 39,
    /// Like `GoStart`, with a label. Arguments: g, seq, labelid.
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
    /// A message, which follows as a length and bytes. Arguments: id, keyid, stack.
    UserLog = 48,
    /// A CPU sample. Arguments: ts, p, g, stack.
    CpuSample = 49,
}

impl EventType {
    /// Returns its number on the wire.
    #[inline]
    pub(super) const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the first byte of a record that is not an event: its number, and the layout of its values.
    pub(super) const fn first_byte(self) -> u8 {
        let layout = match self {
            Self::Stack => LENGTH_PREFIXED,
            // Two values; in an event the first of them would be the time.
            Self::Batch => 1,
            _ => 0,
        };
        self.number() | layout << 6
    }
}
