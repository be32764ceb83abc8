//! The events of the first trace format, as a table: the encoder writes by it, the parser reads by it.
//!
//! Order and names are those on the wire. The comments in Go's sources list some arguments in another order.

/// What an argument means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A number that refers to nothing.
    Number,
    /// The id of a goroutine.
    CheckedGoroutine,
    /// The sequence number of a goroutine's, or the collector's, transition.
    Sequence,
    /// The id of the stack that the event happened on; 0 is none. Always the last argument.
    Stack,
    /// The id of the stack that a new goroutine starts with. Unlike the event's own it has to be defined.
    StartStack,
    /// The id of a string; 0 is the empty one.
    String,
    /// The id of a task; 0 is none.
    Task,
    /// Ticks since the clock's zero, not since the event before.
    Ticks,
}

/// One argument of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// What Go calls it; `newstack` is what Go calls `stack` as well.
    pub name: &'static str,
    /// What it means.
    pub kind: ArgumentKind,
}

/// The largest number of arguments that an event has, the time not counted.
pub(crate) const MAX_ARGUMENTS: usize = 4;

/// The upper bits of a first byte that mean: a length follows, and then the values.
pub(crate) const LENGTH_PREFIXED: u8 = 3;

/// The most bytes that may follow a length: more is refused by Go 1.22 and later.
pub(crate) const MAX_LENGTH: u64 = 2048;

/// The P of a batch that belongs to no processor.
pub const NO_PROC: u64 = u64::MAX;

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $timed:ident,
       [$($argument:literal $kind:ident),*];)*) => {
        /// The type of an event, or of another record of a trace. Go: `EvGoCreate` and the like.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum EventType { $($(#[$doc])* $variant = $number,)* }

        impl EventType {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The type with this number on the wire.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// What Go's tools print.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its arguments without the time, the stack included.
            pub const fn arguments(self) -> &'static [Argument] {
                match self {
                    $(Self::$variant => &[$(Argument { name: $argument, kind: ArgumentKind::$kind }),*],)*
                }
            }

            /// Whether its first value is the time, in ticks since the event before it in its batch.
            pub const fn is_timed(self) -> bool {
                match self { $(Self::$variant => events!(@ $timed),)* }
            }
        }
    };
    (@ timed) => { true };
    (@ untimed) => { false };
}

events! {
    /// Begins a batch: what follows is of this P, and its clock begins at `ticks`.
    Batch = 1, "Batch", untimed, ["p" Number, "ticks" Ticks];
    /// Ticks per second.
    Frequency = 2, "Frequency", untimed, ["freq" Number];
    /// A stack; behind the two arguments follow four values a frame: PC, function, file, line.
    Stack = 3, "Stack", untimed, ["id" Number, "siz" Number];
    /// How many Ps there are.
    Gomaxprocs = 4, "Gomaxprocs", timed, ["procs" Number, "stack" Stack];
    /// A P begins to run, on this thread.
    ProcStart = 5, "ProcStart", timed, ["thread" Number];
    /// A P stops.
    ProcStop = 6, "ProcStop", timed, [];
    /// A collection begins.
    GcStart = 7, "GCStart", timed, ["seq" Sequence, "stack" Stack];
    /// A collection is over.
    GcDone = 8, "GCDone", timed, [];
    /// The world is being stopped; 0 for mark termination, 1 for sweep termination.
    StwStart = 9, "GCSTWStart", timed, ["kindid" Number];
    /// The world goes on.
    StwDone = 10, "GCSTWDone", timed, [];
    /// This P begins to sweep.
    GcSweepStart = 11, "GCSweepStart", timed, ["stack" Stack];
    /// This P has swept, in bytes.
    GcSweepDone = 12, "GCSweepDone", timed, ["swept" Number, "reclaimed" Number];
    /// A goroutine is created.
    GoCreate = 13, "GoCreate", timed, ["g" CheckedGoroutine, "newstack" StartStack, "stack" Stack];
    /// A goroutine starts to run.
    GoStart = 14, "GoStart", timed, ["g" CheckedGoroutine, "seq" Sequence];
    /// A goroutine ends.
    GoEnd = 15, "GoEnd", timed, [];
    /// A goroutine blocks for ever.
    GoStop = 16, "GoStop", timed, ["stack" Stack];
    /// A goroutine lets others run.
    GoSched = 17, "GoSched", timed, ["stack" Stack];
    /// A goroutine is made to let others run.
    GoPreempt = 18, "GoPreempt", timed, ["stack" Stack];
    /// A goroutine sleeps.
    GoSleep = 19, "GoSleep", timed, ["stack" Stack];
    /// A goroutine blocks, for no reason that is told.
    GoBlock = 20, "GoBlock", timed, ["stack" Stack];
    /// A goroutine may run again.
    GoUnblock = 21, "GoUnblock", timed, ["g" CheckedGoroutine, "seq" Sequence, "stack" Stack];
    /// A goroutine blocks as it sends on a channel.
    GoBlockSend = 22, "GoBlockSend", timed, ["stack" Stack];
    /// A goroutine blocks as it receives from a channel.
    GoBlockRecv = 23, "GoBlockRecv", timed, ["stack" Stack];
    /// A goroutine blocks on several channels.
    GoBlockSelect = 24, "GoBlockSelect", timed, ["stack" Stack];
    /// A goroutine blocks on a lock.
    GoBlockSync = 25, "GoBlockSync", timed, ["stack" Stack];
    /// A goroutine blocks on a condition variable.
    GoBlockCond = 26, "GoBlockCond", timed, ["stack" Stack];
    /// A goroutine blocks on the network.
    GoBlockNet = 27, "GoBlockNet", timed, ["stack" Stack];
    /// A goroutine enters a system call.
    GoSysCall = 28, "GoSysCall", timed, ["stack" Stack];
    /// A goroutine has left a system call that blocked; `ts` is when, 0 for now.
    GoSysExit = 29, "GoSysExit", timed, ["g" CheckedGoroutine, "seq" Sequence, "ts" Ticks];
    /// The system call that a goroutine is in blocks.
    GoSysBlock = 30, "GoSysBlock", timed, [];
    /// A goroutine was blocked when the trace began.
    GoWaiting = 31, "GoWaiting", timed, ["g" CheckedGoroutine];
    /// A goroutine was in a system call when the trace began.
    GoInSyscall = 32, "GoInSyscall", timed, ["g" CheckedGoroutine];
    /// Bytes of the heap that are in use.
    HeapAlloc = 33, "HeapAlloc", timed, ["mem" Number];
    /// Bytes at which the next collection begins.
    HeapGoal = 34, "HeapGoal", timed, ["mem" Number];
    /// What this goroutine unblocks was unblocked by a timer.
    TimerGoroutine = 35, "TimerGoroutine", untimed, ["g" CheckedGoroutine];
    /// The last wake-up of the goroutine was for nothing. No tool since Go 1.22 reads it.
    FutileWakeup = 36, "FutileWakeup", timed, [];
    /// A string; its bytes follow.
    String = 37, "String", untimed, ["id" Number, "len" Number];
    /// As `GoStart`, where the goroutine's last transition was on this P.
    GoStartLocal = 38, "GoStartLocal", timed, ["g" CheckedGoroutine];
    /// As `GoUnblock`, where the goroutine's last transition was on this P.
    GoUnblockLocal = 39, "GoUnblockLocal", timed, ["g" CheckedGoroutine, "stack" Stack];
    /// As `GoSysExit`, where the goroutine's last transition was on this P. No tool can read it.
    GoSysExitLocal = 40, "GoSysExitLocal", timed, ["g" CheckedGoroutine, "ts" Ticks];
    /// As `GoStart`, with a label.
    GoStartLabel = 41, "GoStartLabel", timed, ["g" CheckedGoroutine, "seq" Sequence, "labelid" String];
    /// A goroutine waits for the collector.
    GoBlockGc = 42, "GoBlockGC", timed, ["stack" Stack];
    /// A goroutine begins to help the collector.
    GcMarkAssistStart = 43, "GCMarkAssistStart", timed, ["stack" Stack];
    /// A goroutine has helped the collector.
    GcMarkAssistDone = 44, "GCMarkAssistDone", timed, [];
    /// A task begins.
    UserTaskCreate = 45, "UserTaskCreate", timed, ["taskid" Task, "pid" Task, "typeid" String, "stack" Stack];
    /// A task ends.
    UserTaskEnd = 46, "UserTaskEnd", timed, ["taskid" Task, "stack" Stack];
    /// A region begins, with mode 0, or ends, with mode 1.
    UserRegion = 47, "UserRegion", timed, ["taskid" Task, "mode" Number, "typeid" String, "stack" Stack];
    /// A message; it follows as a length and bytes.
    UserLog = 48, "UserLog", timed, ["id" Task, "keyid" String, "stack" Stack];
    /// A sample of the processor profile.
    CpuSample = 49, "CPUSample", timed, ["ts" Ticks, "p" Number, "g" CheckedGoroutine, "stack" Stack];
}

impl EventType {
    /// Its number on the wire: the lower six bits of a record's first byte.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// How many values follow the first byte, the time included. A `Stack` has its frames besides.
    pub const fn values(self) -> usize {
        self.arguments().len() + self.is_timed() as usize
    }

    /// The upper two bits of the first byte: one less than there are values, at most [`LENGTH_PREFIXED`], which means
    /// that a length comes first. Of a `String` they are 0.
    pub(crate) const fn argument_bits(self) -> u8 {
        let more = self.values() - 1;
        match self {
            Self::String => 0,
            Self::Stack => LENGTH_PREFIXED,
            _ if more > LENGTH_PREFIXED as usize => LENGTH_PREFIXED,
            _ => more as u8,
        }
    }

    /// The first byte of its records.
    #[cfg(test)]
    pub(crate) const fn first_byte(self) -> u8 {
        self.number() | self.argument_bits() << 6
    }

    /// Where the argument of this kind stands: the first, if there are two.
    pub const fn position(self, kind: ArgumentKind) -> Option<usize> {
        let arguments = self.arguments();
        let mut at = 0;
        while at < arguments.len() {
            if arguments[at].kind as u8 == kind as u8 {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// Which argument is the goroutine that the event is about, if it names one.
    pub const fn goroutine(self) -> Option<usize> {
        self.position(ArgumentKind::CheckedGoroutine)
    }

    /// Which argument is the stack that it happened on.
    pub const fn stack(self) -> Option<usize> {
        self.position(ArgumentKind::Stack)
    }

    /// Which argument is a string: a name, a category, a label.
    pub const fn string(self) -> Option<usize> {
        self.position(ArgumentKind::String)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_fits_the_wire() {
        let numbers: Vec<u8> = EventType::ALL.iter().map(|event| event.number()).collect();
        assert_eq!(numbers, (1..=49).collect::<Vec<u8>>());
        for &event in EventType::ALL {
            assert_eq!(EventType::from_number(event.number()), Some(event));
            assert!(event.arguments().len() <= MAX_ARGUMENTS, "{event:?}");
            if let Some(stack) = event.stack() {
                assert_eq!(stack + 1, event.arguments().len(), "{event:?}: the stack is the last argument");
            }
        }
        assert_eq!(EventType::from_number(0), None);
        assert_eq!(EventType::from_number(50), None);
    }

    #[test]
    fn first_bytes_are_those_that_go_writes() {
        let cases = [
            (EventType::Batch, 0x41),
            (EventType::Frequency, 0x02),
            (EventType::Stack, 0xc3),
            (EventType::HeapAlloc, 0x61),
            (EventType::GoCreate, 0xcd),
            (EventType::GoStartLocal, 0x66),
            (EventType::UserLog, 0xf0),
            (EventType::String, 0x25),
            (EventType::ProcStop, 0x06),
            (EventType::GoStart, 0x8e),
            (EventType::TimerGoroutine, 0x23),
        ];
        for (event, byte) in cases {
            assert_eq!(event.first_byte(), byte, "{event:?}");
        }
    }
}
