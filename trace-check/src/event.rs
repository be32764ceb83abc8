//! The events of the first trace format, as a table from which the parser works.
//!
//! Order and names are those on the wire. The comments in Go's sources list some arguments in another order.

/// The meaning of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A number without reference.
    Number,
    /// The id of a goroutine.
    Goroutine,
    /// The sequence number of a transition of a goroutine or of the collector.
    Sequence,
    /// The id of the event's stack; 0 is none. Always the last argument.
    Stack,
    /// The id of the start stack of a new goroutine. Unlike the event's own stack, it must be defined.
    StartStack,
    /// The id of a string; 0 is the empty one.
    String,
    /// The id of a task; 0 is none.
    Task,
    /// Ticks since the clock's zero, not since the previous event.
    Ticks,
}

/// One argument of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Go's name; `newstack` is called `stack` by Go as well.
    pub name: &'static str,
    /// The argument's meaning.
    pub kind: ArgumentKind,
}

/// The largest number of arguments of an event, without the time.
pub(crate) const MAX_ARGUMENTS: usize = 4;

/// The upper bits of a first byte after which a length and then the values follow.
pub(crate) const LENGTH_PREFIXED: u8 = 3;

/// The most bytes that may follow a length: Go 1.22 and later reject more.
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
            /// All types, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the type with this number on the wire.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// Returns the name that Go's tools print.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns its arguments without the time, the stack included.
            pub const fn arguments(self) -> &'static [Argument] {
                match self {
                    $(Self::$variant => &[$(Argument { name: $argument, kind: ArgumentKind::$kind }),*],)*
                }
            }

            /// Whether its first value is the time, in ticks since the previous event in its batch.
            pub const fn is_timed(self) -> bool {
                match self { $(Self::$variant => events!(@ $timed),)* }
            }
        }
    };
    (@ timed) => { true };
    (@ untimed) => { false };
}

events! {
    /// Begins a batch of records of one P, whose clock begins at `ticks`.
    Batch = 1, "Batch", untimed, ["p" Number, "ticks" Ticks];
    /// Ticks per second.
    Frequency = 2, "Frequency", untimed, ["freq" Number];
    /// A stack; after the two arguments follow four values for each frame: PC, function, file, line.
    Stack = 3, "Stack", untimed, ["id" Number, "siz" Number];
    /// The number of Ps.
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
    GoCreate = 13, "GoCreate", timed, ["g" Goroutine, "newstack" StartStack, "stack" Stack];
    /// A goroutine starts to run.
    GoStart = 14, "GoStart", timed, ["g" Goroutine, "seq" Sequence];
    /// A goroutine ends.
    GoEnd = 15, "GoEnd", timed, [];
    /// A goroutine blocks for ever.
    GoStop = 16, "GoStop", timed, ["stack" Stack];
    /// A goroutine yields.
    GoSched = 17, "GoSched", timed, ["stack" Stack];
    /// A goroutine is preempted.
    GoPreempt = 18, "GoPreempt", timed, ["stack" Stack];
    /// A goroutine sleeps.
    GoSleep = 19, "GoSleep", timed, ["stack" Stack];
    /// A goroutine blocks, for an unspecified reason.
    GoBlock = 20, "GoBlock", timed, ["stack" Stack];
    /// A goroutine can run again.
    GoUnblock = 21, "GoUnblock", timed, ["g" Goroutine, "seq" Sequence, "stack" Stack];
    /// A goroutine blocks while it sends on a channel.
    GoBlockSend = 22, "GoBlockSend", timed, ["stack" Stack];
    /// A goroutine blocks while it receives from a channel.
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
    /// A goroutine has left a system call that blocked; `ts` is the time, 0 for now.
    GoSysExit = 29, "GoSysExit", timed, ["g" Goroutine, "seq" Sequence, "ts" Ticks];
    /// The system call of a goroutine blocks.
    GoSysBlock = 30, "GoSysBlock", timed, [];
    /// A goroutine was blocked when the trace began.
    GoWaiting = 31, "GoWaiting", timed, ["g" Goroutine];
    /// A goroutine was in a system call when the trace began.
    GoInSyscall = 32, "GoInSyscall", timed, ["g" Goroutine];
    /// Bytes of the heap that are in use.
    HeapAlloc = 33, "HeapAlloc", timed, ["mem" Number];
    /// Bytes at which the next collection begins.
    HeapGoal = 34, "HeapGoal", timed, ["mem" Number];
    /// Goroutines that this goroutine unblocks were unblocked by a timer.
    TimerGoroutine = 35, "TimerGoroutine", untimed, ["g" Goroutine];
    /// The last wake-up of the goroutine was futile. No tool since Go 1.22 reads this event.
    FutileWakeup = 36, "FutileWakeup", timed, [];
    /// A string; its bytes follow.
    String = 37, "String", untimed, ["id" Number, "len" Number];
    /// Like `GoStart`, if the goroutine's last transition was on this P.
    GoStartLocal = 38, "GoStartLocal", timed, ["g" Goroutine];
    /// Like `GoUnblock`, if the goroutine's last transition was on this P.
    GoUnblockLocal = 39, "GoUnblockLocal", timed, ["g" Goroutine, "stack" Stack];
    /// Like `GoSysExit`, if the goroutine's last transition was on this P. No tool can read it.
    GoSysExitLocal = 40, "GoSysExitLocal", timed, ["g" Goroutine, "ts" Ticks];
    /// Like `GoStart`, with a label.
    GoStartLabel = 41, "GoStartLabel", timed, ["g" Goroutine, "seq" Sequence, "labelid" String];
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
    /// A message, which follows as a length and bytes.
    UserLog = 48, "UserLog", timed, ["id" Task, "keyid" String, "stack" Stack];
    /// A CPU sample.
    CpuSample = 49, "CPUSample", timed, ["ts" Ticks, "p" Number, "g" Goroutine, "stack" Stack];
}

impl EventType {
    /// Returns its number on the wire: the lower six bits of a record's first byte.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns how many values follow the first byte, the time included. A `Stack` has its frames besides.
    pub const fn values(self) -> usize {
        self.arguments().len() + self.is_timed() as usize
    }

    /// Returns the upper two bits of the first byte: the number of values less one, at most [`LENGTH_PREFIXED`], which
    /// means that a length comes first. For a `String` they are 0.
    pub(crate) const fn argument_bits(self) -> u8 {
        let more = self.values() - 1;
        match self {
            Self::String => 0,
            Self::Stack => LENGTH_PREFIXED,
            _ if more > LENGTH_PREFIXED as usize => LENGTH_PREFIXED,
            _ => more as u8,
        }
    }

    /// Returns the first byte of its records.
    #[cfg(test)]
    pub(crate) const fn first_byte(self) -> u8 {
        self.number() | self.argument_bits() << 6
    }

    /// Returns the index of the argument of this kind: the first, if there are two.
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

    /// Returns the index of the argument that names the event's goroutine, if there is one.
    pub const fn goroutine(self) -> Option<usize> {
        self.position(ArgumentKind::Goroutine)
    }

    /// Returns the index of the argument with the event's stack.
    pub const fn stack(self) -> Option<usize> {
        self.position(ArgumentKind::Stack)
    }

    /// Returns the index of the argument that is a string: a name, a category, a label.
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
