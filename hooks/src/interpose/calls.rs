//! Calls that read, write or wait for files, sockets and processes. Whether such a call waits is known only when it is
//! over.
//!
//! Problem: a service makes a hundred thousand of these a second, and most take less than a microsecond. Two events for
//! each would cost as much as some of the calls, and would show waits that did not happen. Scheme: the goroutine stays
//! in the state running, with a note of the call ([`rtprof_runtime::goroutine::Call`]), and only a long call is
//! recorded, when it is over:
//!
//! | call | long from | in a trace | in the block profile |
//! |---|---|---|---|
//! | `poll`, `select`, `epoll_wait` with time to wait | 5 µs: it has slept, most likely | waits for the network | `NETWORK` |
//! | on a socket | 20 µs | waits for the network; in a system call, if the socket is one that does not wait | `NETWORK`, or `SYSCALL` |
//! | any other | 20 µs, as in Go | in a system call | `SYSCALL` |

use core::ffi::c_int;

use rtprof_profiler::{BlockKinds, contention};
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use super::descriptors;
use super::forward::{errno, set_errno};
use crate::inner::wait::WaitReason;
use crate::inner::within;

/// A poll with a timeout has slept if it took longer: the kernel takes about as long to put a thread to sleep and wake
/// it. The threads of a busy server sleep for less than 20 microseconds at a time.
const SLEEP_MICROS: u64 = 5;
/// A call on a nonblocking socket is over sooner, unless its thread lost its core,
const REFUSAL_MICROS: u64 = 1000;
/// or it has transferred this many bytes.
const MANY_BYTES: c_int = 64 << 10;

/// The kind of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// It cannot wait.
    Immediate,
    /// It reads or writes a file, or waits for a process.
    System,
    /// It transfers something over a socket, or accepts a connection.
    Socket { socket: c_int },
    /// As `Socket`; a successful result is a new socket, which is nonblocking or not.
    Accept { socket: c_int, is_nonblocking: bool },
    /// It connects a socket; it waits for that if the socket is blocking.
    Connect { socket: c_int },
    /// It waits until one of several descriptors is ready.
    Poll,
    /// It waits until a time has passed.
    Sleep,
}

impl Call {
    /// The state of the goroutine during a long call.
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

    /// Learns from the result of the call whether the socket is nonblocking. Returns whether the socket has refused to
    /// wait.
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
            // The socket is blocking after all: it has got the number of a closed one.
            descriptors::note(socket, false);
            return false;
        }
        // A blocking socket returns the same after a timeout (`SO_RCVTIMEO`), which is a millisecond at least.
        let has_refused = result == -1 && matches!(errno, libc::EAGAIN | libc::EINPROGRESS);
        if has_refused {
            descriptors::note(socket, true);
        }
        has_refused
    }
}

/// The return types of the functions: -1 is an error.
pub(super) trait Outcome: Copy {
    /// The value as an `int`. A value that does not fit is neither an error nor a descriptor.
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

/// Makes the call, and reports it if it was long. Exports hide the frames of a function of this name, and of all that
/// it calls.
#[inline(never)]
pub(super) fn interposed_io<R: Outcome>(call: Call, make: impl FnOnce() -> R) -> R {
    let mark = FrameMark::new();
    if within::is_hidden(&mark) {
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
    // A call in a signal handler is part of the call that the handler has interrupted.
    let is_outermost = within::enter_call(&mark, mark.set());
    let begin = clock::ticks();
    let outer = own.map(|own| own.call().enter(state, begin));
    set_errno(before);
    // A thread that is cancelled in the call is unwound through this frame, so nothing here has a destructor.
    let result = make();
    let after = errno();
    let end = clock::ticks();
    let ticks = clock::since(begin, end);
    if call.learn(result.as_int(), after, ticks) {
        state = State::Syscall;
    }
    if call.is_long(ticks) && is_outermost {
        record(own, state, (begin, end));
    }
    // Not before the record: a generation that ends in between would show neither the call nor its record.
    if let (Some(own), Some(outer)) = (own, outer) {
        own.call().leave(outer);
    }
    within::leave_call(&mark, is_outermost);
    runs(own);
    set_errno(after);
    result
}

/// Shows that a goroutine runs that was in the kernel when the trace began.
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
        contention::block_event(kind, clock::since(begin, end));
    }
    if let Some(own) = own {
        states::call_ended(own, state, (begin, end));
    }
}
