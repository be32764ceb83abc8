//! Writes a line to standard error for every sampled malloc and free, with its stack. Go: the `allocfreetrace` of
//! `GODEBUG` (`tracealloc`, `tracefree`, `tracegc`).
//!
//! ```text
//! tracealloc(0x7f2c40010000, 0x40)
//! goroutine 4711 [running]:
//!   /srv/app+0x1a2b3
//!   /srv/app+0x9f00
//!
//! ```
//!
//! Each line of a stack is a file and an address in the file's own numbering, just before the return address, as
//! `addr2line -Cfie /srv/app 0x1a2b3` expects it. Names are not looked up here: that takes more memory and time than a
//! hook has. The goroutine is the thread, by the kernel's number.
//!
//! Each record is formatted in fixed memory and written with one `write`, so that records of several threads do not
//! mix; only a record larger than the buffer takes several writes.

use core::sync::atomic::{AtomicBool, Ordering};

use rtprof_profiler::sampling::DueSample;
use rtprof_runtime::hook::Hook;
use rtprof_runtime::stack;

static ON: AtomicBool = AtomicBool::new(false);

/// Switches the trace of sampled mallocs and frees on or off; off at start. With a rate of 1 it shows every malloc and
/// free, as the example `epochs` does with `--events`. Go: `GODEBUG=allocfreetrace=1`.
///
/// Costs microseconds and a system call for each event: for debugging, not for production.
pub fn set_alloc_free_trace(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Traces a malloc. The caller is in the hook of the sample, so the trace's own allocations are not traced.
#[inline]
pub(crate) fn malloc(ptr: *mut u8, size: usize, _due: &DueSample) {
    if ON.load(Ordering::Relaxed) {
        // Without stack room for the text, the event is not shown.
        stack::with_room_for_text(|| imp::event("tracealloc", ptr as usize, size));
    }
}

/// Traces a free. `is_in_hook` says whether the thread is in a hook already.
#[inline]
pub(crate) fn free(ptr: *mut u8, size: usize, is_in_hook: bool) {
    if ON.load(Ordering::Relaxed) {
        let entered = if is_in_hook { None } else { Hook::enter() };
        if is_in_hook || entered.is_some() {
            stack::with_room_for_text(|| imp::event("tracefree", ptr as usize, size));
        }
    }
}

/// Traces a collector's cycle: the thread that runs it, and the process's other threads by number.
pub(crate) fn collection() {
    if ON.load(Ordering::Relaxed)
        && let Some(_hook) = Hook::enter()
    {
        imp::collection();
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    use core::fmt::{self, Write};
    use rtprof_runtime::{MAX_STACK, modules, stack};

    /// Formats into fixed memory, and writes to standard error when it is full or dropped.
    struct Record {
        len: usize,
        text: [u8; 8192],
    }

    impl Record {
        fn new() -> Self {
            Self { len: 0, text: [0; 8192] }
        }

        fn flush(&mut self) {
            let mut rest = &self.text[..self.len];
            while !rest.is_empty() {
                // A raw system call, because the C library's `write` is a cancellation point.
                // SAFETY: the bytes belong to this record, and their number is passed.
                let n = unsafe { libc::syscall(libc::SYS_write, 2, rest.as_ptr(), rest.len()) };
                // SAFETY: the location is this thread's own and always valid.
                if n < 0 && unsafe { *libc::__errno_location() } == libc::EINTR {
                    continue;
                }
                if n <= 0 {
                    // If standard error is closed or full, the trace is lost, but the program continues.
                    break;
                }
                rest = &rest[n as usize..];
            }
            self.len = 0;
        }

        fn stack(&mut self) {
            let mut frames = [0; MAX_STACK];
            let depth = stack::capture(&mut frames);
            for &frame in &frames[..depth] {
                let at = frame.wrapping_sub(1);
                let _ = match modules::find(at) {
                    Some(module) => writeln!(self, "  {}+{:#x}", module.path, at.wrapping_sub(module.bias)),
                    None => writeln!(self, "  {at:#x}"),
                };
            }
        }
    }

    impl Write for Record {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            for part in s.as_bytes().chunks(self.text.len()) {
                if self.len + part.len() > self.text.len() {
                    self.flush();
                }
                self.text[self.len..self.len + part.len()].copy_from_slice(part);
                self.len += part.len();
            }
            Ok(())
        }
    }

    impl Drop for Record {
        fn drop(&mut self) {
            self.flush();
        }
    }

    fn thread_id() -> i32 {
        // SAFETY: the call has no preconditions.
        unsafe { libc::gettid() }
    }

    pub(super) fn event(name: &str, ptr: usize, size: usize) {
        let mut record = Record::new();
        let _ = write!(record, "{name}({ptr:#x}, {size:#x})\ngoroutine {} [running]:\n", thread_id());
        record.stack();
        let _ = record.write_str("\n");
    }

    pub(super) fn collection() {
        let mut record = Record::new();
        let me = thread_id();
        let _ = write!(record, "tracegc()\ngoroutine {me} [running]:\n");
        record.stack();
        // Not a hot path, but still inside the guard, so allocations made here are not sampled.
        for entry in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = entry.file_name();
            if let Some(id) = name.to_str().and_then(|n| n.parse::<i32>().ok()).filter(|&id| id != me) {
                let _ = writeln!(record, "goroutine {id}");
            }
        }
        let _ = record.write_str("end tracegc\n\n");
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    pub(super) fn event(_name: &str, _ptr: usize, _size: usize) {}

    pub(super) fn collection() {}
}
