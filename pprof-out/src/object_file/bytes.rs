//! The bytes of a file that others can change while we read it.
//!
//! Problem: a file that is mapped and then truncated, or rewritten in place by a build, raises SIGBUS at the next
//! access. The signal ends the host program. Consequence: no file is mapped. Scheme: one descriptor for all that is
//! asked of a file, and blocks of 4 KiB copied into memory of ours when they are first needed:
//!
//! ```text
//!   groups    [ 0 | 1 | · | 3 | ... ]        one for each 2 MiB of the file
//!               │
//!               └─► [ · | · | b | b | ... ]  one for each 4 KiB, read at the first access
//! ```
//!
//! Debug information is large and little of it is needed: the head of each unit, the units of the addresses that are
//! looked up, and the names in these. A read that fails makes a name unknown and nothing else.

use std::cell::{Cell, OnceCell};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use object::read::ReadCacheOps;
use rtprof_profiler::modules::FileIdentity;

use crate::progress::Progress;

const BLOCK: usize = 4096;
/// Blocks in a group.
const GROUP: usize = 512;

/// The largest file that is read. The table of groups of such a file takes 256 KiB.
const LARGEST: u64 = 64 << 30;

/// How much of a module's files, and of what is unpacked from them, may be in memory at one time. Of a program with
/// gigabytes of debug information an export needs less than that; a damaged file may ask for anything.
const MOST: u64 = 256 << 20;

type Block = [u8; BLOCK];
type Group = [OnceCell<Box<Block>>; GROUP];

/// How many bytes the files of one module may still take.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    left: Rc<Cell<u64>>,
    progress: Progress,
}

impl Allowance {
    /// Each use of it is a step of `progress`.
    pub(super) fn new(progress: &Progress) -> Self {
        Self { left: Rc::new(Cell::new(MOST)), progress: progress.clone() }
    }

    pub(super) fn take(&self, bytes: u64) -> io::Result<()> {
        self.progress.note();
        let left = self.left.get().checked_sub(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        self.left.set(left);
        Ok(())
    }
}

/// A regular file, open, and what was read of it so far.
#[derive(Debug)]
pub(super) struct FileBytes {
    file: File,
    len: u64,
    /// Has the time of the last change of its content.
    identity: Option<FileIdentity>,
    groups: Box<[OnceCell<Box<Group>>]>,
    allowance: Allowance,
}

impl FileBytes {
    /// Opens a regular file. Never waits for a FIFO's writer, a terminal or another device.
    pub(super) fn open(path: &Path, allowance: &Allowance) -> io::Result<Self> {
        // Looked at before it is opened: to open a FIFO lets its writer go on, and to open a device does what its
        // driver likes.
        require_regular(&std::fs::metadata(path)?)?;
        let file = open_non_blocking(path)?;
        // The path may have led elsewhere meanwhile.
        let metadata = settled(&file)?;
        let len = metadata.len();
        if len > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let groups = len.div_ceil((BLOCK * GROUP) as u64) as usize;
        Ok(Self {
            file,
            len,
            identity: FileIdentity::of_metadata(&metadata),
            groups: (0..groups).map(|_| OnceCell::new()).collect(),
            allowance: allowance.clone(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// What file it is.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    /// Whether it has not been written to since it was opened. Else its parts may not belong together, and the names
    /// that were found in it may be those of other functions.
    pub(super) fn is_unchanged(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|now| now.len() == self.len && FileIdentity::of_metadata(&now) == self.identity)
    }

    /// Reads `into.len()` bytes at `at`, past all blocks.
    pub(super) fn read_exact(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        read_exact_at(&self.file, into, at)
    }

    /// The bytes from `at` to the end of its block: 4096 at most. Those beyond the end of the file are 0.
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
            let len = self.len.saturating_sub(start).min(BLOCK as u64) as usize;
            self.read_exact(&mut bytes[..len], start)?;
            // Fails if it is there already.
            let _ = known.set(bytes);
        }
        let bytes = known.get().ok_or(io::ErrorKind::Other)?;
        Ok(&bytes[within..])
    }
}

/// What is known of a file whose last change lies far enough in the past for the next one to have another time: what is
/// written to it from now on is seen by [`FileBytes::is_unchanged`].
///
/// A time of change is that of the kernel's last clock tick, 10 ms at most before. Two writes within one tick have the
/// same, and a read between them has not the bytes that are there after the second.
fn settled(file: &File) -> io::Result<Metadata> {
    const TICKS: Duration = Duration::from_millis(20);
    const ATTEMPTS: usize = 5;
    for _ in 0..ATTEMPTS {
        let metadata = file.metadata()?;
        require_regular(&metadata)?;
        // A time in the future, by another machine's clock, is no reason to wait.
        let age = metadata.modified()?.elapsed().unwrap_or(TICKS);
        if age >= TICKS {
            return Ok(metadata);
        }
        std::thread::sleep(TICKS);
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn require_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(unix)]
fn open_non_blocking(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // A regular file is read as ever with these. They matter if the path leads to something else by now.
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

/// A file as [`object::ReadCache`] reads headers and tables: each at once, into memory of its own.
pub(super) struct Tables<'a> {
    bytes: &'a FileBytes,
    at: u64,
}

impl<'a> Tables<'a> {
    pub(super) fn of(bytes: &'a FileBytes) -> Self {
        Self { bytes, at: 0 }
    }
}

impl ReadCacheOps for Tables<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.bytes.len)
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, ()> {
        let len = self.bytes.len.saturating_sub(self.at).min(into.len() as u64) as usize;
        self.read_exact(&mut into[..len])?;
        Ok(len)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), ()> {
        let read = self.bytes.allowance.take(into.len() as u64);
        read.and_then(|()| self.bytes.read_exact(into, self.at)).map_err(drop)?;
        self.at = self.at.saturating_add(into.len() as u64);
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn allowance() -> Allowance {
        Allowance::new(&Progress::default())
    }

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rtprof-bytes-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
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
