//! Reads the bytes of a file that other processes can change at the same time.
//!
//! Problem: a file that is mapped and then truncated, or rewritten in place by a build, raises SIGBUS at the next
//! access. The signal ends the host program. Consequence: no file is mapped. Scheme: one descriptor for all reads of a
//! file, and blocks of 4 KiB that are copied into our own memory when they are first needed:
//!
//! ```text
//!   groups    [ 0 | 1 | · | 3 | ... ]        one for each 2 MiB of the file
//!               │
//!               └─► [ · | · | b | b | ... ]  one for each 4 KiB, read at the first access
//! ```
//!
//! Debug information is large and little of it is needed: the head of each unit, the units of the addresses that are
//! looked up, and the names in these. A failed read only makes a name unknown.

use std::cell::{Cell, OnceCell};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rtprof_runtime::hook;
use rtprof_runtime::hook::room;
use rtprof_runtime::lock::fork_safe::PerProcess;

use crate::progress::Progress;

const BLOCK: usize = 4096;
/// Blocks in a group.
const GROUP: usize = 512;

/// The largest file that is read. The table of groups of such a file takes 256 KiB.
const LARGEST: u64 = 64 << 30;

/// The most bytes of a module's files, and of data unpacked from them, that may be in memory at one time. An export of
/// a program with gigabytes of debug information needs less than that; a damaged file may ask for any amount.
const MOST: u64 = 256 << 20;

/// The resolution of change times: the kernel's last clock tick is at most 10 ms before the change.
const TICKS: Duration = Duration::from_millis(20);

/// The most files whose checksums are remembered.
const MOST_CHECKSUMS: usize = 64;

type Block = [u8; BLOCK];
type Group = [OnceCell<Box<Block>>; GROUP];

/// The bytes that the files of one module may still take, and whether a read has failed.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    left: Rc<Cell<u64>>,
    /// Whether it began with less than [`MOST`], because the process has no more memory.
    is_reduced: bool,
    /// Whether a read has failed for a temporary reason.
    has_failed: Rc<Cell<bool>>,
    progress: Progress,
}

impl Allowance {
    /// Each use of the allowance notes a step of `progress`.
    pub(super) fn new(progress: &Progress) -> Self {
        let has_failed = Rc::new(Cell::new(false));
        // The parsers need about as much again, and so does the export that waits for the names.
        let room = room::for_work(4 * MOST as usize) as u64 / 4;
        Self {
            left: Rc::new(Cell::new(room)),
            is_reduced: room < MOST,
            has_failed,
            progress: progress.clone(),
        }
    }

    pub(super) fn take(&self, bytes: u64) -> io::Result<()> {
        self.progress.note();
        let Some(left) = self.left.get().checked_sub(bytes) else {
            // There may be more memory the next time.
            self.has_failed.set(self.is_reduced || self.has_failed.get());
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        self.left.set(left);
        Ok(())
    }

    /// Returns bytes that were taken.
    pub(super) fn give_back(&self, bytes: u64) {
        self.left.set(self.left.get().saturating_add(bytes));
    }

    /// Whether a read has failed since the last call for a temporary reason: too many open files, or a disk error. A
    /// missing file, or a request for more than is allowed, does not count, because it will fail again.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.replace(false)
    }

    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        use io::ErrorKind::*;
        if let Err(error) = &result
            && !matches!(
                error.kind(),
                NotFound | NotADirectory | PermissionDenied | InvalidInput | FileTooLarge
            )
        {
            self.has_failed.set(true);
        }
        result
    }
}

/// A regular file, with the blocks that were read so far.
#[derive(Debug)]
pub(super) struct FileBytes {
    handle: Handle,
    state: FileState,
    groups: Box<[OnceCell<Box<Group>>]>,
    allowance: Allowance,
}

impl FileBytes {
    /// Opens a regular file. Never waits for a FIFO's writer, a terminal or another device.
    pub(super) fn open(path: &Path, allowance: &Allowance) -> io::Result<Self> {
        let file = allowance.noted(open_regular(path))?;
        // The path may have been redirected in between.
        let state = FileState::of(&allowance.noted(settled(&file))?);
        if state.len > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let groups = state.len.div_ceil((BLOCK * GROUP) as u64) as usize;
        Ok(Self {
            handle: Handle::Open(OwnFile { file: Some(file), is: state.file }, path.to_owned()),
            state,
            groups: (0..groups).map(|_| OnceCell::new()).collect(),
            allowance: allowance.clone(),
        })
    }

    /// Like [`open`](Self::open), for one of many files: no descriptor is kept, and the file is opened for each read.
    pub(super) fn look_into(path: &Path, allowance: &Allowance) -> io::Result<Self> {
        Ok(Self { handle: Handle::ByPath(path.to_owned()), ..Self::open(path, allowance)? })
    }

    pub(super) fn len(&self) -> u64 {
        self.state.len
    }

    pub(super) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Whether `path` still leads to this file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| FileState::of(&metadata).file == self.state.file)
    }

    /// Whether the file is as it was at `time`: it was not written to since, and was not moved to its path later.
    pub(super) fn is_older_than(&self, time: SystemTime) -> bool {
        let changed = SystemTime::UNIX_EPOCH.checked_add(self.state.changed);
        changed.and_then(|changed| changed.checked_add(TICKS)).is_some_and(|changed| changed < time)
    }

    /// Whether the file has not been written to since it was opened. Otherwise its parts may be inconsistent, and the
    /// names found in it may be those of other functions.
    pub(super) fn is_unchanged(&self) -> bool {
        let now = match &self.handle {
            Handle::Open(file, path) => {
                file.get().map_or_else(|| std::fs::metadata(path), |file| file.metadata())
            }
            Handle::ByPath(path) => std::fs::metadata(path),
        };
        now.is_ok_and(|now| FileState::of(&now).has_content_of(&self.state))
    }

    /// Reads `into.len()` bytes at `at`, bypassing the blocks.
    pub(super) fn read_exact(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let read = match &self.handle {
            Handle::Open(file, path) => match file.get() {
                Some(file) => read_exact_at(file, into, at),
                None => self.read_again(path, into, at),
            },
            Handle::ByPath(path) => self.read_again(path, into, at),
        };
        self.allowance.noted(read)
    }

    /// Returns the checksum of the file's content (CRC-32), as in the section `.gnu_debuglink`.
    pub(super) fn checksum(&self) -> io::Result<u32> {
        // The file is opened again for each search, and may have gigabytes.
        static KNOWN: PerProcess<Mutex<Vec<(FileState, u32)>>> = PerProcess::new();
        let known = || KNOWN.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, checksum)) = known().iter().find(|(state, _)| state.has_content_of(&self.state)) {
            return Ok(*checksum);
        }
        let mut checksum = crc32fast::Hasher::new();
        let mut piece = vec![0; 16 * BLOCK];
        let mut at = 0;
        while at < self.len() {
            let len = (self.len() - at).min(piece.len() as u64) as usize;
            self.read_exact(&mut piece[..len], at)?;
            checksum.update(&piece[..len]);
            at += len as u64;
            self.allowance.progress.note();
        }
        let checksum = checksum.finalize();
        hook::outside_workspace(|| {
            let mut known = known();
            known.truncate(MOST_CHECKSUMS - 1);
            known.insert(0, (self.state, checksum));
        });
        Ok(checksum)
    }

    fn read_again(&self, path: &Path, into: &mut [u8], at: u64) -> io::Result<()> {
        let file = open_regular(path)?;
        if !FileState::of(&file.metadata()?).has_content_of(&self.state) {
            // It is another file. `is_unchanged` detects that too.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read_exact_at(&file, into, at)
    }

    /// Returns the bytes from `at` to the end of its block: 4096 at most. Bytes beyond the end of the file are 0.
    pub(super) fn block(&self, at: u64) -> io::Result<&[u8]> {
        let (block, within) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
        let group = self.groups.get(block / GROUP).ok_or(io::ErrorKind::UnexpectedEof)?;
        if group.get().is_none() {
            self.allowance.take(size_of::<Group>() as u64)?;
        }
        let group = group.get_or_init(|| Box::new([const { OnceCell::new() }; GROUP]));
        let known = &group[block % GROUP];
        if known.get().is_none() {
            let start = at - within as u64;
            self.allowance.take(BLOCK as u64)?;
            let mut bytes = Box::new([0; BLOCK]);
            let len = self.len().saturating_sub(start).min(BLOCK as u64) as usize;
            self.read_exact(&mut bytes[..len], start)?;
            // Fails if the block is there already.
            let _ = known.set(bytes);
        }
        let bytes = known.get().ok_or(io::ErrorKind::Other)?;
        Ok(&bytes[within..])
    }
}

#[derive(Debug)]
enum Handle {
    /// With its path, for the case that the program closes it.
    Open(OwnFile, PathBuf),
    ByPath(PathBuf),
}

/// A file whose descriptor the program may close: a daemon closes all of them, and its own files get their numbers. Such a
/// file is neither read nor closed. A name search takes up to seconds.
#[derive(Debug)]
struct OwnFile {
    /// `None` only while this is dropped.
    file: Option<File>,
    /// Device and inode.
    is: [u64; 2],
}

impl OwnFile {
    /// Returns the file; `None` if the program has closed it.
    fn get(&self) -> Option<&File> {
        let is_ours =
            |file: &&File| file.metadata().is_ok_and(|metadata| FileState::of(&metadata).file == self.is);
        self.file.as_ref().filter(is_ours)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.get().is_none() {
            std::mem::forget(self.file.take());
        }
    }
}

/// The identity of a file and its version.
#[derive(Clone, Copy, Debug)]
struct FileState {
    /// Device and inode.
    file: [u64; 2],
    len: u64,
    /// Time of the last write, since 1970.
    written: [i64; 2],
    /// Time of the last write, rename or link, since 1970. Unlike `written`, it cannot be set by programs.
    changed: Duration,
}

impl FileState {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let seconds = metadata.ctime().try_into().unwrap_or(u64::MAX);
        Self {
            file: [metadata.dev(), metadata.ino()],
            len: metadata.len(),
            written: [metadata.mtime(), metadata.mtime_nsec()],
            changed: Duration::from_secs(seconds)
                .saturating_add(Duration::from_nanos(metadata.ctime_nsec().try_into().unwrap_or(0))),
        }
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        Self { file: [0; 2], len: metadata.len(), written: [0; 2], changed: Duration::MAX }
    }

    fn has_content_of(&self, other: &Self) -> bool {
        (self.file, self.len, self.written) == (other.file, other.len, other.written)
    }
}

/// Returns the metadata of a file whose last change is so long ago that the next change will have another time: later
/// writes are then detected by [`FileBytes::is_unchanged`].
///
/// Two writes within one tick have the same time, and a read between them does not see the bytes of the second.
fn settled(file: &File) -> io::Result<Metadata> {
    const ATTEMPTS: usize = 5;
    for _ in 0..ATTEMPTS {
        let metadata = file.metadata()?;
        require_regular(&metadata)?;
        // A time in the future, from another machine's clock, is no reason to wait.
        let age = metadata.modified()?.elapsed().unwrap_or(TICKS);
        if age >= TICKS {
            return Ok(metadata);
        }
        std::thread::sleep(TICKS);
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn require_regular(metadata: &Metadata) -> io::Result<()> {
    let refusal = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    if metadata.is_file() { Ok(()) } else { Err(refusal()) }
}

/// Opens a regular file. Never waits for a FIFO's writer, a terminal or another device.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening: opening a FIFO lets its writer continue, and opening a device does whatever its driver
    // does.
    require_regular(&std::fs::metadata(path)?)?;
    open_non_blocking(path)
}

#[cfg(unix)]
fn open_non_blocking(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // These flags do not affect regular files. They matter if the path leads to something else by now.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(not(unix))]
fn open_non_blocking(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(unix)]
fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(into)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;

    fn allowance() -> Allowance {
        Allowance::new(&Progress::default())
    }

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rtprof-bytes-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// As if the program had closed the descriptor, and its own file had got the number.
    #[test]
    fn a_descriptor_that_is_another_file_is_left_alone() {
        use std::os::fd::AsRawFd;
        let content = vec![b'a'; 3 * BLOCK];
        let path = file("ours", &content);
        let mut bytes = FileBytes::open(&path, &allowance()).unwrap();
        let Handle::Open(own, _) = &mut bytes.handle else { panic!("it is open") };
        let others = own.file.insert(File::open("/dev/null").unwrap()).as_raw_fd();
        assert_eq!(bytes.block(BLOCK as u64).unwrap()[..], content[..BLOCK], "by its path");
        assert!(bytes.is_unchanged());
        drop(bytes);
        let is_open = |descriptor| std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok();
        assert!(!cfg!(target_os = "linux") || is_open(others), "it was left open");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn blocks_are_the_file() {
        let content: Vec<u8> = (0..BLOCK * GROUP + 5000).map(|at| (at / 7) as u8).collect();
        let path = file("blocks", &content);
        let bytes = FileBytes::open(&path, &allowance()).unwrap();
        std::fs::remove_file(&path).unwrap();
        for at in [0, 1, BLOCK - 1, BLOCK, BLOCK * GROUP - 3, BLOCK * GROUP + 4999] {
            let block = bytes.block(at as u64).unwrap();
            let len = block.len().min(content.len() - at);
            assert_eq!(block.len(), BLOCK - at % BLOCK);
            assert_eq!(block[..len], content[at..at + len], "{at}");
        }
        assert!(bytes.block(1 << 40).is_err());
        assert!(bytes.is_unchanged());
    }

    #[test]
    fn a_file_that_is_cut_or_written_is_an_error_and_no_signal() {
        let path = file("cut", &vec![1; 3 * BLOCK]);
        let bytes = FileBytes::open(&path, &allowance()).unwrap();
        assert_eq!(bytes.block(0).unwrap()[0], 1);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(BLOCK as u64).unwrap();
        assert_eq!(bytes.block(0).unwrap()[0], 1);
        assert!(bytes.block(2 * BLOCK as u64).is_err());
        assert!(!bytes.is_unchanged());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_looked_into_must_stay_the_same() {
        let path = file("into", &vec![1; 3 * BLOCK]);
        let allowance = allowance();
        let bytes = FileBytes::look_into(&path, &allowance).unwrap();
        assert_eq!(bytes.block(BLOCK as u64).unwrap()[0], 1);
        assert!(bytes.is_unchanged() && !allowance.has_failed());
        // The same content, in another file.
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        std::fs::write(&path, vec![1; 3 * BLOCK]).unwrap();
        assert_eq!(bytes.block(BLOCK as u64).unwrap()[0], 1, "what is there stays");
        assert!(bytes.block(0).is_err() && !bytes.is_unchanged());
        assert!(allowance.has_failed() && !allowance.has_failed());
        for name in [path.clone(), path.with_extension("old")] {
            std::fs::remove_file(name).unwrap();
        }
        assert!(FileBytes::open(&path, &allowance).is_err());
        assert!(!allowance.has_failed(), "a missing file is no failure");
    }

    #[test]
    fn a_file_is_older_than_what_comes_after_it() {
        let path = file("older", b"x");
        let bytes = FileBytes::open(&path, &allowance()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let now = SystemTime::now();
        assert!(bytes.is_older_than(now + TICKS));
        assert!(!bytes.is_older_than(now - Duration::from_secs(3600)));
    }

    #[test]
    fn only_regular_files_and_only_so_much() {
        for path in ["/dev/null", "/", "/nonexistent"] {
            assert!(FileBytes::open(Path::new(path), &allowance()).is_err(), "{path}");
        }
        let path = file("much", &[]);
        let mut sparse = OpenOptions::new().write(true).open(&path).unwrap();
        sparse.write_all(b"x").unwrap();
        sparse.set_len(2 * MOST).unwrap();
        let bytes = FileBytes::open(&path, &allowance()).unwrap();
        let one = (BLOCK + size_of::<Group>()) as u64;
        bytes.allowance().take(MOST - one).unwrap();
        assert!(bytes.block(0).is_ok());
        assert!(bytes.block(BLOCK as u64).is_err(), "more than is allowed");
        assert!(bytes.block(1).is_ok(), "what is there stays");
        sparse.set_len(LARGEST + 1).unwrap();
        assert!(FileBytes::open(&path, &allowance()).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
