//! Which thread has which P.

use super::clock::IDLE;
use super::event::{EventType as E, proc_status};
use super::streams::{Holds, Shown, Streams, Syscall};

/// Threads that replace one whose goroutine is in a system call.
const REPLACEMENTS: u64 = 1 << 43;

/// The distance between threads that have the same number, one after the other.
const SAME_NUMBER: u64 = 1 << 33;

impl Streams {
    /// Writes that the P is idle, if that is not written yet.
    pub(super) fn stop(&mut self, index: u32) {
        if let Some(since) = self.streams[index].idle_since.take() {
            self.append(index, since, E::ProcStop, []);
            self.streams[index].shown = Shown::Idle;
        }
    }

    /// Gives the P to a thread, and returns the tick of that.
    pub(super) fn start_proc(&mut self, index: u32, tick: u64, thread: u64) -> u64 {
        let owner = *self.threads.entry(thread).or_insert(index);
        // Two threads of one number, one after the other, may be written in another order.
        let owner = if owner == index { thread } else { thread + SAME_NUMBER * u64::from(index) };
        let thread = *self.replaced.get(&owner).unwrap_or(&owner);
        let stream = &mut self.streams[index];
        stream.owner = owner;
        if matches!(stream.holds, Holds::InSyscall(..) | Holds::AfterSyscall(..)) {
            stream.idle_since = None;
            return tick;
        }
        let is_same = stream.thread == thread;
        match stream.shown {
            Shown::Running if is_same => match stream.idle_since {
                Some(since) if tick.saturating_sub(since) > IDLE => self.stop(index),
                _ => {
                    stream.idle_since = None;
                    return tick;
                }
            },
            Shown::Running => {
                stream.idle_since.get_or_insert(tick);
                self.stop(index);
            }
            Shown::Unknown => {
                (stream.thread, stream.shown) = (thread, Shown::Running);
                self.append(index, tick, E::ProcStatus, [index.into(), proc_status::RUNNING]);
                return tick;
            }
            Shown::Idle => {}
        }
        // The P's stop is on another thread, or its state at the beginning is.
        let stream = &self.streams[index];
        let stopped = if stream.thread == thread { 0 } else { stream.batch.last() };
        let tick = tick.max(stopped.max(self.begin) + 1);
        self.move_to(index, thread);
        let stream = &mut self.streams[index];
        stream.sequence += 1;
        stream.shown = Shown::Running;
        let sequence = stream.sequence;
        self.append(index, tick, E::ProcStart, [index.into(), sequence]);
        tick
    }

    /// Continues the events of a P on another thread.
    fn move_to(&mut self, index: u32, thread: u64) {
        let stream = &mut self.streams[index];
        if stream.thread != thread {
            stream.batch.close(&mut self.closed, self.generation, stream.thread);
            stream.thread = thread;
        }
    }

    /// Writes the end of a system call after which the goroutine did not continue on its thread.
    pub(super) fn resolve(&mut self, index: u32) {
        if let Holds::AfterSyscall(goroutine, tick) = self.streams[index].holds {
            self.append(index, tick, E::GoSyscallEnd, []);
            self.append(index, tick, E::GoStop, [0, 0]);
            let stream = &mut self.streams[index];
            stream.holds = Holds::Nothing;
            let known = &mut self.goroutines[goroutine];
            (known.syscall, known.cause) = (Syscall::None, (stream.batch.last(), stream.thread));
        }
    }

    /// Takes the P away from a thread whose goroutine is in a system call. `false` if there is none.
    pub(super) fn leave_in_syscall(&mut self, index: u32) -> bool {
        let Holds::InSyscall(goroutine, since) = self.streams[index].holds else { return false };
        // Not later: the call may be over before the P is used again.
        self.append(index, since, E::ProcStop, []);
        let stream = &mut self.streams[index];
        (stream.shown, stream.holds, stream.idle_since) = (Shown::Idle, Holds::Nothing, None);
        self.goroutines[goroutine].syscall = Syscall::WithoutProc(stream.thread, stream.batch.last());
        // The end of the call comes after it in the file.
        stream.batch.close(&mut self.closed, self.generation, stream.thread);
        // For ever, because no goroutine can start on the thread before its own is back.
        self.replacements += 1;
        self.replaced.insert(stream.owner, REPLACEMENTS + self.replacements);
        true
    }

    /// Gives the P of a thread whose goroutine is in a system call to a new thread.
    pub(super) fn replace_thread(&mut self, index: u32, tick: u64) {
        if self.leave_in_syscall(index) {
            self.start_proc(index, tick, self.streams[index].owner);
        }
    }
}
