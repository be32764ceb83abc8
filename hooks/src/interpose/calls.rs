//! A call that reads, writes or waits for files, sockets and processes: whether it waits is known when it is over.
//!
//! Problem: a service makes a hundred thousand of these a second, most of which take less than a microsecond. Two events for each
//! would cost as much as some of them do, and would show waits that are none. Scheme: the goroutine goes on running, with a note
//! of the call ([`rtprof_runtime::goroutine::Call`]), and only a call that was long is recorded, when it is over:
//!
//! | call | long from | in a trace | in the block profile |
//! |---|---|---|---|
//! | `poll`, `select`, `epoll_wait` with time to wait | 5 µs: it has slept, most likely | waits for the network | `NETWORK` |
//! | on a socket | 20 µs | waits for the network; in a system call, if the socket is one that does not wait | `NETWORK`, or `SYSCALL` |
//! | any other | 20 µs, as in Go | in a system call | `SYSCALL` |

use core::ffi::c_int;

use rtprof_profiler::{BlockKinds, contention};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::state::State;
use rtprof_tracer::states;

use super::descriptors;
use super::forward::{errno, set_errno};
use crate::wait::WaitReason;

/// What polls and has time to wait has slept if it took longer: the kernel takes about as long to put a thread to sleep and wake it.
/// The threads of a server that is busy sleep for less than 20 microseconds at a time.
const SLEEP_MICROS: u64 = 5;
/// A call on a socket that does not wait is over sooner, unless its thread was kept from its core,
const REFUSAL_MICROS: u64 = 1000;
/// or has transferred so many bytes.
const MANY_BYTES: c_int = 64 << 10;

/// What a call does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// It cannot wait.
    Immediate,
    /// It reads or writes a file, or waits for a process.
    System,
    /// It transfers something over a socket, or accepts a connection.
    Socket { socket: c_int },
    /// As `Socket`, and a result that is no error is a new socket, which waits or does not.
    Accept { socket: c_int, is_nonblocking: bool },
    /// It connects a socket: at once, if that is one that waits.
    Connect { socket: c_int },
    /// It waits until one of several descriptors is ready.
    Poll,
    /// It waits for a time to pass.
    Sleep,
}

impl Call {
    /// What the goroutine does meanwhile, if the call is long.
    fn state(self) -> State {
        match self {
            Self::Immediate | Self::System => State::Syscall,
            Self::Socket { socket } | Self::Accept { socket, .. } | Self::Connect { socket } => {
                if descriptors::refuses_to_wait(socket) {
                    State::Syscall
                } else {
                    State::Waiting(WaitReason::Net)
                }
            }
            Self::Poll => State::Waiting(WaitReason::Net),
            Self::Sleep => State::Waiting(WaitReason::Sleep),
        }
    }

    fn is_long(self, ticks: u64) -> bool {
        match self {
            Self::Poll | Self::Sleep => clock::are_micros(ticks, SLEEP_MICROS),
            _ => clock::are_micros(ticks, states::LONG_MICROS),
        }
    }

    /// Learns from how the call went which sockets wait. Returns whether the socket has refused to.
    #[inline]
    fn learn(self, result: c_int, errno: c_int, ticks: u64) -> bool {
        let (Self::Socket { socket } | Self::Accept { socket, .. } | Self::Connect { socket }) = self else {
            return false;
        };
        if let Self::Accept { is_nonblocking, .. } = self
            && result >= 0
        {
            descriptors::note(result, is_nonblocking);
        }
        if clock::are_micros(ticks, REFUSAL_MICROS) && result < MANY_BYTES {
            // It waits after all: one that has got the number of another.
            descriptors::note(socket, false);
            return false;
        }
        // One that waits returns the same when its time is over (`SO_RCVTIMEO`), of a millisecond at least.
        let has_refused = result == -1 && matches!(errno, libc::EAGAIN | libc::EINPROGRESS);
        if has_refused {
            descriptors::note(socket, true);
        }
        has_refused
    }
}

/// What the functions return: -1 for an error.
pub(super) trait Outcome: Copy {
    /// As an `int`; anything that is none is neither an error nor a descriptor.
    fn as_int(self) -> c_int;
}

impl Outcome for c_int {
    #[inline(always)]
    fn as_int(self) -> c_int {
        self
    }
}

impl Outcome for isize {
    #[inline(always)]
    fn as_int(self) -> c_int {
        c_int::try_from(self).unwrap_or(c_int::MAX)
    }
}

/// Makes the call, and reports it if it was long. The name is one that exports hide, with all that it calls.
#[inline(never)]
pub(super) fn interposed_io<R: Outcome>(call: Call, make: impl FnOnce() -> R) -> R {
    if hidden::is_hidden(Calls::WAITS) {
        return make();
    }
    let before = errno();
    let own = goroutine::current();
    runs(own);
    if matches!(call, Call::Immediate) {
        set_errno(before);
        return make();
    }
    let mut state = call.state();
    let begin = clock::ticks();
    let outer = own.map(|own| own.call().enter(state, begin));
    set_errno(before);
    // A thread that is cancelled in the call is unwound through here: nothing has a destructor.
    let result = make();
    let after = errno();
    if let (Some(own), Some(outer)) = (own, outer) {
        own.call().leave(outer);
    }
    let end = clock::ticks();
    let ticks = clock::since(begin, end);
    if call.learn(result.as_int(), after, ticks) {
        state = State::Syscall;
    }
    // A signal handler's is part of the call that it has interrupted.
    let is_inner = outer.is_some_and(|outer| !outer.is_none());
    if call.is_long(ticks) && !is_inner {
        record(own, state, (begin, end));
    }
    runs(own);
    set_errno(after);
    result
}

/// A goroutine that was found in the kernel when the trace began is there no more.
#[inline(always)]
fn runs(own: Option<&Goroutine>) {
    if let Some(own) = own
        && own.state().state() == State::Syscall
    {
        states::resume(own);
    }
}

#[inline(always)]
fn record(own: Option<&Goroutine>, state: State, (begin, end): (u64, u64)) {
    let kind = match state {
        State::Waiting(reason) => BlockKinds::of(reason),
        _ => BlockKinds::SYSCALL,
    };
    if contention::is_block_kind_on(kind) {
        contention::block_event(clock::since(begin, end));
    }
    if let Some(own) = own {
        states::call_ended(own, state, (begin, end));
    }
}
