//! Functions that are never called: their addresses stand in a stack where there is no real frame,
//! and their names say why.
//!
//! Each returns another number, so that no linker folds two of them into one address, and calls
//! nothing, so that no inlined function's name stands before its own.

/// One of these functions.
pub type Marker = extern "C" fn() -> u32;

/// The stack of a sample beyond the limit on distinct stacks.
#[inline(never)]
pub extern "C" fn too_many_distinct_stacks() -> u32 {
    1
}

/// The stack of a sample whose stack could not be walked: no unwind cache was free, or too little
/// stack was left to walk on.
#[inline(never)]
pub extern "C" fn stack_not_captured() -> u32 {
    2
}

/// The stack of a thread, in the goroutine profile, that was asked for its stack by a signal and did not answer in time:
/// it waits in the kernel where no signal wakes it, or is stopped.
#[inline(never)]
pub extern "C" fn thread_does_not_answer() -> u32 {
    3
}

/// The stack of a thread, in the goroutine profile, that blocks the signal by which it would be asked; and in the CPU profile
/// of the time of such threads.
#[inline(never)]
pub extern "C" fn thread_blocks_signals() -> u32 {
    4
}

/// The stack of a thread, in the goroutine profile, that was not asked because the program does not want it.
#[inline(never)]
pub extern "C" fn thread_signals_are_off() -> u32 {
    5
}

/// The stack of a thread, in the goroutine profile, that was not asked because every real-time signal has a handler of the
/// program.
#[inline(never)]
pub extern "C" fn no_real_time_signal_is_free() -> u32 {
    6
}

/// The stack of a thread, in the goroutine profile, that was not asked because the kernel sends no signal for us.
#[inline(never)]
pub extern "C" fn kernel_refuses_signals() -> u32 {
    7
}

/// The stack of a thread, in the goroutine profile, that was not asked because /proc does not tell whether it blocks the
/// signal: it is not mounted, or the process has no descriptor left.
#[inline(never)]
pub extern "C" fn proc_cannot_be_read() -> u32 {
    8
}

/// The stack of a thread, in the goroutine profile, that was not asked because as many signals are pending as the limit of the
/// user allows (`RLIMIT_SIGPENDING`).
#[inline(never)]
pub extern "C" fn signal_queue_is_full() -> u32 {
    9
}

/// The stack, in the CPU profile, of processor time without a sample: of threads that ended before they were found, and of
/// those whose timers did not go off while they ran.
#[inline(never)]
pub extern "C" fn cpu_time_not_sampled() -> u32 {
    10
}

/// The stack, in the CPU profile, of the time of threads of rtprof's that no signal interrupts.
#[inline(never)]
pub extern "C" fn rtprof_helper_thread() -> u32 {
    11
}

/// The stack of a thread, in the goroutine profile, that was polling a task when it was recorded, and of whose own frames none
/// was kept.
#[inline(never)]
pub extern "C" fn stack_is_the_tasks() -> u32 {
    12
}

/// The stack of a task, in the goroutine profile, that was polled while no thread was found polling it: it begins and ends its
/// polls, or moves between threads, too fast.
#[inline(never)]
pub extern "C" fn task_is_polled() -> u32 {
    13
}

/// The stack of a task, in the goroutine profile, that was never polled yet.
#[inline(never)]
pub extern "C" fn task_was_not_polled_yet() -> u32 {
    14
}

/// The stack of a task, in the goroutine profile, that was woken and will be polled, and has not noted where it awaited before.
#[inline(never)]
pub extern "C" fn task_was_woken() -> u32 {
    15
}

/// The stack of a task, in the goroutine or block profile, that waits and has not noted where: its executor has not polled it since it was
/// asked to, or its leaf has not asked to be woken in its last poll.
#[inline(never)]
pub extern "C" fn task_was_not_polled_for_its_stack() -> u32 {
    16
}

/// The stack of a task, in the goroutine or block profile, that waits while no waker of it is left, and has not noted where.
#[inline(never)]
pub extern "C" fn task_has_no_waker() -> u32 {
    17
}

/// The frame that stands for a marker: like a return address, it is looked up at the byte before.
pub fn frame(marker: Marker) -> usize {
    marker as usize + 1
}
