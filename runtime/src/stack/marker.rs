//! Functions that are never called: their addresses stand in a stack where a real frame is missing, and their names say
//! why.
//!
//! Each returns a different number, so that no linker merges two of them into one address, and calls nothing, so that
//! no inlined function's name precedes its own.

/// The type of these functions.
pub type Marker = extern "C" fn() -> u32;

/// The stack of a sample beyond the limit on distinct stacks.
#[inline(never)]
pub(crate) extern "C" fn too_many_distinct_stacks() -> u32 {
    1
}

/// The stack of a sample whose stack could not be walked: no unwind cache was free, or too little
/// stack was left to walk on.
#[inline(never)]
pub extern "C" fn stack_not_captured() -> u32 {
    2
}

/// The stack of a thread, in the goroutine profile, that received the signal and did not answer in time: it waits in
/// the kernel where no signal wakes it, or is stopped.
#[inline(never)]
pub(crate) extern "C" fn thread_does_not_answer() -> u32 {
    3
}

/// In the goroutine profile, the stack of a thread that blocks the signal by which it would be asked; in the CPU
/// profile, the stack of the time of such threads.
#[inline(never)]
pub extern "C" fn thread_blocks_signals() -> u32 {
    4
}

/// The stack of a thread, in the goroutine profile, that was not asked because the program has turned thread signals
/// off.
#[inline(never)]
pub(crate) extern "C" fn thread_signals_are_off() -> u32 {
    5
}

/// The stack of a thread, in the goroutine profile, that was not asked because the program has handlers for
/// `SIGURG`, `SIGWINCH` and every real-time signal.
#[inline(never)]
pub(crate) extern "C" fn no_signal_is_free() -> u32 {
    6
}

/// The stack of a thread, in the goroutine profile, that was not asked because the kernel refuses to send our signals.
#[inline(never)]
pub(crate) extern "C" fn kernel_refuses_signals() -> u32 {
    7
}

/// The stack of a thread, in the goroutine profile, that was not asked because /proc does not reveal whether it blocks
/// the signal: /proc is not mounted, or the process has no descriptor left.
#[inline(never)]
pub(crate) extern "C" fn proc_cannot_be_read() -> u32 {
    8
}

/// The stack of a thread, in the goroutine profile, that was not asked because the number of pending signals is at the
/// user's limit (`RLIMIT_SIGPENDING`).
#[inline(never)]
pub(crate) extern "C" fn signal_queue_is_full() -> u32 {
    9
}

/// The stack, in the CPU profile, of processor time without a sample: of threads that ended before they were found, and
/// of threads whose timers did not expire while they ran.
#[inline(never)]
pub extern "C" fn cpu_time_not_sampled() -> u32 {
    10
}

/// The stack, in the CPU profile, of the time of rtprof's threads that no signal interrupts.
#[inline(never)]
pub extern "C" fn rtprof_helper_thread() -> u32 {
    11
}

/// The stack of a thread, in the goroutine profile, that was polling a task when it was recorded, if none of the
/// thread's own frames was kept.
#[inline(never)]
pub(crate) extern "C" fn stack_is_the_tasks() -> u32 {
    12
}

/// The stack of a task, in the goroutine profile, that was being polled while no thread was found polling it: its polls
/// begin and end, or it moves between threads, too fast.
#[inline(never)]
pub extern "C" fn task_is_polled() -> u32 {
    13
}

/// The stack of a task, in the goroutine profile, that was not polled yet.
#[inline(never)]
pub(crate) extern "C" fn task_was_not_polled_yet() -> u32 {
    14
}

/// The stack of a task, in the goroutine profile, that was woken and will be polled, and had not noted where it
/// awaited.
#[inline(never)]
pub(crate) extern "C" fn task_was_woken() -> u32 {
    15
}

/// The stack of a task, in the goroutine or block profile, that waits and has not noted where: its executor has not
/// polled it since the request, or its leaf has not cloned the waker in its last poll.
#[inline(never)]
pub extern "C" fn task_was_not_polled_for_its_stack() -> u32 {
    16
}

/// The stack of a task, in the goroutine or block profile, that waits without any waker left, and has not noted where.
#[inline(never)]
pub extern "C" fn task_has_no_waker() -> u32 {
    17
}

/// Returns the frame that stands for a marker: like a return address, it is looked up at the byte before.
pub fn frame(marker: Marker) -> usize {
    marker as usize + 1
}
