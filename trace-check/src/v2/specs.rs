//! The events of the second format. Go: `tracev2.Specs`.

/// The meaning of an argument that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    String,
    Stack,
}

/// An event: its number, Go's name and its arguments without the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [Kind],
}

macro_rules! events {
    ($($variant:ident = $number:literal, $name:literal, [$($kind:ident),*];)*) => {
        /// An event of a thread.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Type { $($variant,)* }

        impl Type {
            pub(super) fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            pub(super) fn spec(self) -> Spec {
                match self {
                    $(Self::$variant => Spec { name: $name, arguments: &[$(Kind::$kind),*] },)*
                }
            }
        }
    };
}

events! {
    ProcsChange = 9, "ProcsChange", [Number, Stack];
    ProcStart = 10, "ProcStart", [Number, Number];
    ProcStop = 11, "ProcStop", [];
    ProcSteal = 12, "ProcSteal", [Number, Number, Number];
    ProcStatus = 13, "ProcStatus", [Number, Number];
    GoCreate = 14, "GoCreate", [Number, Stack, Stack];
    GoCreateSyscall = 15, "GoCreateSyscall", [Number];
    GoStart = 16, "GoStart", [Number, Number];
    GoDestroy = 17, "GoDestroy", [];
    GoDestroySyscall = 18, "GoDestroySyscall", [];
    GoStop = 19, "GoStop", [String, Stack];
    GoBlock = 20, "GoBlock", [String, Stack];
    GoUnblock = 21, "GoUnblock", [Number, Number, Stack];
    GoSyscallBegin = 22, "GoSyscallBegin", [Number, Stack];
    GoSyscallEnd = 23, "GoSyscallEnd", [];
    GoSyscallEndBlocked = 24, "GoSyscallEndBlocked", [];
    GoStatus = 25, "GoStatus", [Number, Number, Number];
    StwBegin = 26, "STWBegin", [String, Stack];
    StwEnd = 27, "STWEnd", [];
    GcActive = 28, "GCActive", [Number];
    GcBegin = 29, "GCBegin", [Number, Stack];
    GcEnd = 30, "GCEnd", [Number];
    GcSweepActive = 31, "GCSweepActive", [Number];
    GcSweepBegin = 32, "GCSweepBegin", [Stack];
    GcSweepEnd = 33, "GCSweepEnd", [Number, Number];
    GcMarkAssistActive = 34, "GCMarkAssistActive", [Number];
    GcMarkAssistBegin = 35, "GCMarkAssistBegin", [Stack];
    GcMarkAssistEnd = 36, "GCMarkAssistEnd", [];
    HeapAlloc = 37, "HeapAlloc", [Number];
    HeapGoal = 38, "HeapGoal", [Number];
    GoLabel = 39, "GoLabel", [String];
    UserTaskBegin = 40, "UserTaskBegin", [Number, Number, String, Stack];
    UserTaskEnd = 41, "UserTaskEnd", [Number, Stack];
    UserRegionBegin = 42, "UserRegionBegin", [Number, String, Stack];
    UserRegionEnd = 43, "UserRegionEnd", [Number, String, Stack];
    UserLog = 44, "UserLog", [Number, String, String, Stack];
    GoStatusStack = 48, "GoStatusStack", [Number, Number, Number, Stack];
}

/// Numbers of records that are not events of a thread.
pub(super) mod record {
    pub(crate) const EVENT_BATCH: u8 = 1;
    pub(crate) const STACKS: u8 = 2;
    pub(crate) const STACK: u8 = 3;
    pub(crate) const STRINGS: u8 = 4;
    pub(crate) const STRING: u8 = 5;
    pub(crate) const CPU_SAMPLES: u8 = 6;
    pub(crate) const CPU_SAMPLE: u8 = 7;
    pub(crate) const FREQUENCY: u8 = 8;
    pub(crate) const SYNC: u8 = 50;
    pub(crate) const CLOCK_SNAPSHOT: u8 = 51;
    pub(crate) const END_OF_GENERATION: u8 = 52;
}
