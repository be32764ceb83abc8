//! `syscall`, by which std, parking_lot and crossbeam call the kernel's futex: they wait until a word in memory
//! changes, and wake the threads that wait for it.
//!
//! The function is the C library's, instruction by instruction, with one comparison added, and in calls of the futex two
//! looks at the listeners: before the call, and after it, because recording may have begun while the thread slept. It
//! keeps nothing on the stack, so that every system call works as before, `clone` too.

use core::ffi::{c_int, c_long};

use rtprof_profiler::contention;
use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::goroutine::wait_site;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;
use rtprof_tracer::states;

use super::anywhere::{enter_unless_anywhere, is_anywhere};
use super::forward::{errno, returned, set_errno, system_call};
use super::wait::{InterposedWait, KeptErrno};
use super::watch::unwatched;
use super::yields;
use crate::inner::sleepers::{self, Caller, SLEEPERS, Sleeper, WaitEnd};
use crate::inner::wait;
use crate::inner::within;

/// Instructions that make the system call of the arguments of `syscall`. They keep nothing on the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! kernel_call {
    () => {
        concat!(
            "mov rax, rdi\n",
            "mov rdi, rsi\n",
            "mov rsi, rdx\n",
            "mov rdx, rcx\n",
            "mov r10, r8\n",
            "mov r8, r9\n",
            "mov r9, [rsp + 8]\n",
            "syscall\n",
        )
    };
}

/// As on x86-64. The kernel leaves all registers alone but the result's.
#[cfg(target_arch = "aarch64")]
macro_rules! kernel_call {
    () => {
        concat!(
            "mov x8, x0\n",
            "mov x0, x1\n",
            "mov x1, x2\n",
            "mov x2, x3\n",
            "mov x3, x4\n",
            "mov x4, x5\n",
            "mov x5, x6\n",
            "svc 0\n",
        )
    };
}

/// `long syscall(long number, ...)`
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // Signal handlers and debuggers unwind from here: the stack stays as the caller has left it, to the end. The address of
    // the listeners is read from the global offset table, because in a shared library they may belong to another object.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "cmp rdi, {futex_number}",
        "je 3f",
        kernel_call!(),
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        // Sets the error number, here because a thread that may be cancelled anywhere enters no function of ours.
        "2:",
        "neg eax",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call [rip + {errno_location}@GOTPCREL]",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "mov [rax], ecx",
        "mov rax, -1",
        "ret",
        "3:",
        "mov rax, [rip + {listeners}@GOTPCREL]",
        "cmp dword ptr [rax], 0",
        "jne 5f",
        kernel_call!(),
        "mov rcx, [rip + {listeners}@GOTPCREL]",
        "cmp dword ptr [rcx], 0",
        "jne 4f",
        "cmp rax, -4095",
        "jae 2b",
        "ret",
        "4:",
        "mov rdi, rax",
        "mov rax, rcx",
        enter_unless_anywhere!("{futex_returned}"),
        "mov rax, rdi",
        "cmp rax, -4095",
        "jae 2b",
        "ret",
        "5:",
        enter_unless_anywhere!("{futex}"),
        kernel_call!(),
        "cmp rax, -4095",
        "jae 2b",
        "ret",
        ".cfi_endproc",
        futex_number = const libc::SYS_futex,
        listeners = sym listeners::LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        is_anywhere = sym is_anywhere,
        futex = sym futex_by_caller,
        futex_returned = sym unwatched_futex_returned,
        errno_location = sym libc::__errno_location,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        // `bti c`, for assemblers that do not know it.
        "hint #34",
        "cmp x0, {futex_number}",
        "b.eq 4f",
        kernel_call!(),
        "2:",
        "cmn x0, 4095",
        "b.cs 3f",
        "ret",
        // As on x86-64.
        "3:",
        "stp x29, x30, [sp, -32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset 29, -32",
        ".cfi_offset 30, -24",
        "mov x29, sp",
        "neg w0, w0",
        "str w0, [sp, 16]",
        "bl {errno_location}",
        "ldr w9, [sp, 16]",
        "str w9, [x0]",
        "mov x0, -1",
        "ldp x29, x30, [sp], 32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore 29",
        ".cfi_restore 30",
        "ret",
        "4:",
        "adrp x16, :got:{listeners}",
        "ldr x16, [x16, :got_lo12:{listeners}]",
        "ldr w17, [x16]",
        "cbz w17, 5f",
        enter_unless_anywhere!("{futex}"),
        kernel_call!(),
        "b 2b",
        "5:",
        kernel_call!(),
        "ldr w17, [x16]",
        "cbz w17, 2b",
        enter_unless_anywhere!("{futex_returned}"),
        "b 2b",
        ".cfi_endproc",
        futex_number = const libc::SYS_futex,
        listeners = sym listeners::LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        is_anywhere = sym is_anywhere,
        futex = sym futex_by_caller,
        futex_returned = sym unwatched_futex_returned,
        errno_location = sym libc::__errno_location,
    );
}

/// The effect of a futex call, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// Waits, to be woken by a wake that has one of these bits.
    Wait { bits: u32 },
    /// Wakes up to `count` of the threads that wait for one of these bits.
    Wake { count: u32, bits: u32 },
    /// Neither.
    Other,
}

impl Operation {
    fn of(operation: usize, value: usize, bits: usize) -> Self {
        let count = value as u32;
        match operation as c_int & !FLAGS {
            libc::FUTEX_WAIT_BITSET => Self::Wait { bits: bits as u32 },
            // The last two wait for a lock that the kernel hands over.
            libc::FUTEX_WAIT | libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Self::Wait { bits: ANY },
            // Threads that are requeued instead of woken appear to wake by themselves.
            libc::FUTEX_WAKE | libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP => {
                Self::Wake { count, bits: ANY }
            }
            libc::FUTEX_WAKE_BITSET => Self::Wake { count, bits: bits as u32 },
            libc::FUTEX_UNLOCK_PI => Self::Wake { count: 1, bits: ANY },
            _ => Self::Other,
        }
    }
}

const FUTEX_LOCK_PI2: c_int = 13;
/// `FUTEX_BITSET_MATCH_ANY`
const ANY: u32 = u32::MAX;

/// Returns from a futex call at whose beginning nothing was recorded. Recording may have begun during the call.
extern "C-unwind" fn unwatched_futex_returned(result: isize) -> c_long {
    unwatched(|| returned(result))
}

/// Enters [`interposed_futex`] with the return address of `syscall` in place of the number, which is known. The waits of a
/// library's lock and those of its condition mostly have different callers: both have the code that waits inlined.
///
/// # Safety
/// As the system call.
#[unsafe(naked)]
unsafe extern "C-unwind" fn futex_by_caller(
    number: c_long,
    word: usize,
    operation: usize,
    value: usize,
    timeout: usize,
    word_2: usize,
    bits: usize,
) -> c_long {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rdi, [rsp]",
        "jmp {futex}",
        ".cfi_endproc",
        futex = sym interposed_futex,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x0, x30",
        "b {futex}",
        ".cfi_endproc",
        futex = sym interposed_futex,
    );
}

/// A futex call while something is recorded: a wake, which is hardly more than the system call if it is of no interest, or
/// another call.
///
/// # Safety
/// As the system call.
unsafe extern "C-unwind" fn interposed_futex(
    caller: usize,
    word: usize,
    operation: usize,
    value: usize,
    timeout: usize,
    word_2: usize,
    bits: usize,
) -> c_long {
    if operation as c_int & !FLAGS != libc::FUTEX_WAKE || is_wake_of_interest(word) {
        // SAFETY: the arguments are those of the caller.
        return unsafe { interposed_operation(caller, word, operation, value, timeout, word_2, bits) };
    }
    // SAFETY: as above.
    returned(unsafe { system_call(libc::SYS_futex, [word, operation, value, timeout, word_2, bits]) })
}

/// Bits of an operation that make no difference here.
const FLAGS: c_int = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;

/// # Safety
/// As the system call.
#[inline(never)]
unsafe extern "C-unwind" fn interposed_operation(
    caller: usize,
    word: usize,
    operation: usize,
    value: usize,
    timeout: usize,
    word_2: usize,
    bits: usize,
) -> c_long {
    // SAFETY: the arguments are those that the caller has passed to `syscall`.
    let call =
        move || unsafe { system_call(libc::SYS_futex, [word, operation, value, timeout, word_2, bits]) };
    match Operation::of(operation, value, bits) {
        Operation::Wait { bits } if listeners::are_any() => interposed_wait(caller, word, bits, call),
        Operation::Wait { .. } => unwatched(|| returned(call())),
        Operation::Wake { count, bits } => {
            if is_wake_of_interest(word) {
                interposed_wake(word, count, bits);
            }
            returned(call())
        }
        Operation::Other => returned(call()),
    }
}

// Not cold: a server is here 100,000 times a second, and the compiler inlines little into cold functions.
#[inline(never)]
fn interposed_wait(caller: usize, word: usize, bits: u32, call: impl FnOnce() -> isize) -> c_long {
    let mark = FrameMark::new();
    if within::is_hidden(&mark) {
        return returned(call());
    }
    let before = KeptErrno::new();
    within::enter_wait(mark.set());
    let start = sleepers::rounded(yields::start_of_wait());
    let wait = InterposedWait::begin(WaitReason::Sync, start);
    let (note, choice) = wait.choose(Caller::of(caller));
    let sleeper = Sleeper { address: word, bits, start, goroutine: wait.goroutine(), note };
    let place = within::enter_cell(sleeper);
    before.restore();
    let result = call();
    let now = clock::ticks();
    let after = KeptErrno::new();
    let left = match place {
        Some(place) if result == 0 => SLEEPERS.leave_woken(place, now, wait_site::here),
        Some(place) => WaitEnd { woken: SLEEPERS.leave(place), asks: None },
        None => WaitEnd::default(),
    };
    if let Some(record) = left.asks {
        contention::note_wait_site(record, wait_site::here());
    }
    match left.woken {
        // The word had changed before, so the thread has not slept.
        None if result == REFUSED => wait.unmark(),
        woken => wait.end_chosen(choice, woken, now),
    }
    within::leave_wait(&mark);
    after.restore();
    returned(result)
}

/// What the kernel returns if the word has another value than the caller expects.
const REFUSED: isize = -(libc::EAGAIN as isize);

/// Whether a wake of threads that wait at this address must be recorded: for a profile, or for a trace.
#[inline]
pub(super) fn is_wake_of_interest(address: usize) -> bool {
    SLEEPERS.are_watched(address) || rtprof_tracer::is_enabled()
}

/// Records a wake, before the kernel makes it: the trace must not show the effect before the cause.
#[inline(never)]
fn interposed_wake(word: usize, count: u32, bits: u32) {
    if hidden::is_hidden(Calls::WAKES) {
        return;
    }
    let before = errno();
    let (now, is_watched) = (clock::ticks(), SLEEPERS.are_watched(word));
    let woken = SLEEPERS.wake(word, count, bits, now, unblock);
    if is_watched {
        contention::note_watch(clock::since(now, clock::ticks()));
    }
    wait::woke(&woken);
    set_errno(before);
}

/// Records that the goroutine, whose wait began at `start`, can run. Without a trace it says so itself when it runs: its state
/// is in memory that its thread uses, and to write to it from here takes longer than the rest of the wake.
fn unblock(goroutine: &Goroutine, start: u64) {
    if !rtprof_tracer::is_enabled() {
        return;
    }
    let waits = |state| {
        state == State::Waiting(WaitReason::Sync) && goroutine.waiting() == Some((WaitReason::Sync, start))
    };
    states::unblock_if(goroutine, waits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        let of = |operation: c_int| Operation::of(operation as usize, 7, 0b100);
        let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
        for flags in [0, flags] {
            assert_eq!(of(libc::FUTEX_WAIT | flags), Operation::Wait { bits: ANY });
            assert_eq!(of(libc::FUTEX_WAIT_BITSET | flags), Operation::Wait { bits: 0b100 });
            assert_eq!(of(libc::FUTEX_WAKE | flags), Operation::Wake { count: 7, bits: ANY });
            assert_eq!(of(libc::FUTEX_WAKE_BITSET | flags), Operation::Wake { count: 7, bits: 0b100 });
            assert_eq!(of(libc::FUTEX_UNLOCK_PI | flags), Operation::Wake { count: 1, bits: ANY });
            assert_eq!(of(libc::FUTEX_TRYLOCK_PI | flags), Operation::Other);
        }
    }
}
