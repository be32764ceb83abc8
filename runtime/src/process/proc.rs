//! The process's threads according to /proc. Files are read by raw calls into memory on the stack: a current snapshot
//! must not wait for the program's allocator.

use core::ffi::CStr;
use std::io::Write as _;

use crate::hook::errno;
use crate::hook::own_process;
use crate::thread::kernel_thread;

/// The maximum number of listings until two agree.
const LISTINGS: usize = 5;

/// Returns the ids of all threads of this process, in ascending order: at least of those that live throughout the call.
/// Returns `None` without /proc. Allocates.
///
/// While threads end, the kernel may omit others from a listing: it continues the next part at a position, and the list
/// has become shorter. So the listing is repeated until nothing has changed.
pub fn threads() -> Option<Vec<u32>> {
    let mut threads = listing()?;
    for _ in 1..LISTINGS {
        let before = threads.len();
        let again = listing()?;
        let has_changed = again != threads;
        threads.extend(again);
        threads.sort_unstable();
        threads.dedup();
        if !has_changed || threads.len() == before {
            break;
        }
    }
    Some(threads)
}

/// Returns the ids as [`threads`] does, from a single listing.
pub fn listing() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut threads: Vec<u32> = entries.filter_map(number).collect();
    threads.sort_unstable();
    (!threads.is_empty()).then_some(threads)
}

/// Returns the number of threads of the process, or `None` where it is not known. Takes a microsecond; listing the ids
/// takes a microsecond for each thread.
pub fn count() -> Option<usize> {
    use std::os::unix::fs::MetadataExt as _;
    // A directory has a link from each directory in it, and two for itself.
    usize::try_from(std::fs::metadata("/proc/self/task").ok()?.nlink()).ok()?.checked_sub(2)
}

/// The reason why nothing is known of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStatus {
    /// The thread has ended, except for the kernel's own cleanup.
    Gone,
    /// Its file cannot be read: the process has no descriptor left.
    Unreadable,
}

/// The status of a thread at one moment.
#[derive(Clone, Copy, Default)]
pub struct Status {
    name: [u8; 16],
    /// A letter: `R` running or runnable, `S` waiting, `D` waiting and not woken by signals, `T` and `t` stopped.
    pub(crate) state: u8,
    /// The signals that it blocks: bit 0 for signal 1.
    pub blocked: u64,
    /// The signals that are pending for it.
    pub(crate) pending: u64,
}

impl Status {
    /// Reads the status of thread `id`.
    pub fn of(id: u32) -> Result<Self, NoStatus> {
        let mut status = Self { state: b'R', ..Self::default() };
        let mut has_read = false;
        let is_open = for_lines(id, "status", |line| {
            has_read = true;
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { return true };
            let value = line[colon + 1..].trim_ascii();
            match &line[..colon] {
                b"Name" => {
                    let len = value.len().min(15);
                    status.name[..len].copy_from_slice(&value[..len]);
                }
                b"State" => status.state = value.first().copied().unwrap_or(b'R'),
                b"SigPnd" => status.pending = hexadecimal(value),
                b"SigBlk" => {
                    status.blocked = hexadecimal(value);
                    return false;
                }
                _ => {}
            }
            true
        });
        if !is_open || !has_read {
            return Err(if kernel_thread::is_alive(own_process(), id) {
                NoStatus::Unreadable
            } else {
                NoStatus::Gone
            });
        }
        if matches!(status.state, b'Z' | b'X') { Err(NoStatus::Gone) } else { Ok(status) }
    }

    /// Returns its name, in which newline and backslash are escaped as in the file.
    pub fn name(&self) -> String {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..len]).into_owned()
    }
}

/// Returns the kernel function in which thread `id` waits; empty if it does not wait or the kernel does not reveal it.
/// Allocates.
pub(crate) fn waits_in(id: u32) -> String {
    let mut text = [0; 128];
    let text = read(id, "wchan", &mut text).unwrap_or_default();
    let name = String::from_utf8_lossy(text.trim_ascii()).into_owned();
    if name == "0" { String::new() } else { name }
}

/// Returns when thread `id` was started, in ticks since the machine's start, and whether it is about to end. Returns
/// `None` if the thread is gone.
pub(crate) fn birth(id: u32) -> Option<(u64, bool)> {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let mut text = [0; 1024];
    let text = core::str::from_utf8(read(id, "stat", &mut text)?).ok()?;
    // The third and later fields follow the name, which may contain any bytes.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let flags: u64 = fields.nth(9 - 3)?.parse().ok()?;
    let started = fields.nth(22 - 10)?.parse().ok()?;
    Some((started, flags & EXITING != 0))
}

fn hexadecimal(text: &[u8]) -> u64 {
    core::str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
}

/// Reads the beginning of a file of thread `id`, as much as fits.
fn read<'t>(id: u32, file: &str, room: &'t mut [u8]) -> Option<&'t [u8]> {
    errno::kept(|| {
        let file = File::open(id, file)?;
        let mut len = 0;
        while len < room.len() {
            match file.read(&mut room[len..]) {
                0 => break,
                n => len += n,
            }
        }
        (len > 0).then_some(&room[..len])
    })
}

/// Calls `see` with each line of a file of thread `id`, as long as it returns true. Returns whether the file exists.
///
/// A line may be longer than the buffer: the line of a thread's groups, which may be thousands. Then `see` receives
/// only its end.
fn for_lines(id: u32, file: &str, mut see: impl FnMut(&[u8]) -> bool) -> bool {
    errno::kept(|| {
        let Some(file) = File::open(id, file) else { return false };
        let (mut room, mut len) = ([0; 4096], 0);
        loop {
            if len == room.len() {
                len = 0;
            }
            let n = file.read(&mut room[len..]);
            if n == 0 {
                return true;
            }
            len += n;
            let mut rest = 0;
            while let Some(end) = room[rest..len].iter().position(|&byte| byte == b'\n') {
                if !see(&room[rest..rest + end]) {
                    return true;
                }
                rest += end + 1;
            }
            room.copy_within(rest..len, 0);
            len -= rest;
        }
    })
}

/// An open file of a thread in /proc, closed when dropped.
struct File(libc::c_int);

impl File {
    fn open(id: u32, file: &str) -> Option<Self> {
        let mut path = [0; 64];
        write!(&mut path[..63], "/proc/self/task/{id}/{file}").ok()?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        // SAFETY: the call reads the path.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (fd >= 0).then(|| Self(fd))
    }

    /// Reads more of the file. Returns 0 at its end, and on failure.
    fn read(&self, room: &mut [u8]) -> usize {
        loop {
            // SAFETY: the call writes to `room`, whose size it receives.
            let n = unsafe { libc::read(self.0, room.as_mut_ptr().cast(), room.len()) };
            if n >= 0 || errno::get() != libc::EINTR {
                return n.max(0) as usize;
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened by `open`, and this is its only owner.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::thread::kernel_thread::thread_id;
    use std::sync::mpsc;

    #[test]
    fn a_thread_is_listed_with_its_name_and_what_it_does() {
        let (send, receive) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("proc (a) 1".into());
        let thread = thread.spawn(move || {
            send.send(thread_id()).unwrap();
            ends.recv().ok();
        });
        let id = receive.recv().unwrap();
        let all = threads().expect("/proc");
        assert!(count().is_some_and(|count| count.abs_diff(all.len()) < 20), "{:?} of {all:?}", count());
        assert!(all.is_sorted() && all.contains(&id) && all.contains(&thread_id()), "{all:?}");
        while Status::of(id).unwrap().state != b'S' {
            std::thread::yield_now();
        }
        let status = Status::of(id).unwrap();
        assert_eq!(status.name(), "proc (a) 1");
        assert!(status.blocked == 0 && status.pending == 0);
        assert!(waits_in(id).contains("futex") || waits_in(id).is_empty(), "{}", waits_in(id));
        let (started, is_exiting) = birth(id).unwrap();
        assert!(started >= birth(std::process::id()).unwrap().0 && !is_exiting);
        assert_eq!(Status::of(thread_id()).unwrap().state, b'R');
        drop(end);
        thread.unwrap().join().unwrap();
        crate::thread::kernel_thread::wait_until_gone(id);
        assert!(
            Status::of(id).err() == Some(NoStatus::Gone) && birth(id).is_none() && waits_in(id).is_empty()
        );
    }
}
