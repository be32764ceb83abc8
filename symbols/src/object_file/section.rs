//! A section of a file, as a parser of debug information reads it.

use std::borrow::Cow;
use std::io;

use addr2line::gimli::{Error, NativeEndian, Reader, ReaderOffsetId, Result};

use super::bytes::FileBytes;

/// A range of bytes that is read from the beginning to the end. It may lie in a file, of which only the needed blocks
/// are read, or in memory.
///
/// ```text
///              chunk               beyond
///        ├──────────────────┤├────────────────┤
///   ─────┴──────────────────┴┴────────────────┴────── the section
///        position            end
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    /// The bytes that are loaded.
    chunk: &'a [u8],
    /// The position of the first byte after the chunk, in the file or in memory.
    end: u64,
    /// Bytes that follow after the chunk. 0 in memory.
    beyond: u64,
    file: Option<&'a FileBytes>,
}

impl<'a> Section<'a> {
    pub(super) const EMPTY: Self = Self::in_memory(&[]);

    pub(super) const fn in_memory(bytes: &'a [u8]) -> Self {
        Self { chunk: bytes, end: bytes.len() as u64, beyond: 0, file: None }
    }

    /// A section of `len` bytes at `start`; bytes beyond the end of the file are left out.
    pub(super) fn in_file(file: &'a FileBytes, start: u64, len: u64) -> Self {
        let beyond = len.min(file.len().saturating_sub(start));
        Self { chunk: &[], end: start, beyond, file: Some(file) }
    }

    /// Returns the text at `offset` up to the next zero byte.
    pub(super) fn text(mut self, offset: u64) -> Option<Cow<'a, [u8]>> {
        self.skip(usize::try_from(offset).ok()?).ok()?;
        let text = self.read_null_terminated_slice().ok()?;
        text.bytes().ok()
    }

    fn position(&self) -> u64 {
        self.end - self.chunk.len() as u64
    }

    fn total(&self) -> u64 {
        self.chunk.len() as u64 + self.beyond
    }

    fn eof(&self) -> Error {
        Error::UnexpectedEof(self.offset_id())
    }

    /// Loads the next block if the chunk is empty and more bytes follow.
    #[inline]
    fn fill(&mut self) -> Result<()> {
        if self.chunk.is_empty() && self.beyond > 0 { self.next_block() } else { Ok(()) }
    }

    #[cold]
    fn next_block(&mut self) -> Result<()> {
        let block = self.file.ok_or(Error::Io)?.block(self.end).map_err(|_| Error::Io)?;
        let len = self.beyond.min(block.len() as u64);
        self.chunk = &block[..len as usize];
        self.end += len;
        self.beyond -= len;
        Ok(())
    }

    fn bytes(mut self) -> Result<Cow<'a, [u8]>> {
        self.fill()?;
        if self.beyond == 0 {
            return Ok(Cow::Borrowed(self.chunk));
        }
        let mut whole = Vec::new();
        let len = usize::try_from(self.total()).map_err(|_| Error::UnsupportedOffset)?;
        // A damaged file may have a text of any length.
        let allowed = self.file.map_or(Ok(()), |file| file.allowance().take(len as u64));
        allowed.map_err(|_| Error::Io)?;
        whole.try_reserve_exact(len).map_err(|_| Error::Io)?;
        while !self.chunk.is_empty() {
            whole.extend_from_slice(self.chunk);
            self.chunk = &[];
            self.fill()?;
        }
        Ok(Cow::Owned(whole))
    }
}

impl Reader for Section<'_> {
    type Endian = NativeEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> NativeEndian {
        NativeEndian
    }

    #[inline]
    fn len(&self) -> usize {
        // No file is larger than the address space.
        self.total() as usize
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.beyond == 0
    }

    fn empty(&mut self) {
        let _ = self.truncate(0);
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        if len <= self.chunk.len() {
            self.end -= (self.chunk.len() - len) as u64;
            self.chunk = &self.chunk[..len];
            self.beyond = 0;
            return Ok(());
        }
        let beyond = (len - self.chunk.len()) as u64;
        if beyond > self.beyond {
            return Err(self.eof());
        }
        self.beyond = beyond;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        // The parser calls this only for parts of `base`.
        self.position().saturating_sub(base.position()) as usize
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(match self.file {
            Some(_) => self.position(),
            None => self.chunk.as_ptr() as u64,
        })
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = id.0.checked_sub(self.offset_id().0)?;
        (offset <= self.total()).then_some(offset as usize)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut rest = *self;
        let mut before = 0;
        loop {
            rest.fill()?;
            if rest.chunk.is_empty() {
                return Err(self.eof());
            }
            if let Some(at) = rest.chunk.iter().position(|&b| b == byte) {
                return Ok(before + at);
            }
            before += rest.chunk.len();
            rest.chunk = &[];
        }
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        if let Some(rest) = self.chunk.get(len..) {
            self.chunk = rest;
            return Ok(());
        }
        let further = (len - self.chunk.len()) as u64;
        if further > self.beyond {
            return Err(self.eof());
        }
        self.chunk = &[];
        self.end += further;
        self.beyond -= further;
        Ok(())
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        let mut head = *self;
        head.truncate(len)?;
        self.skip(len)?;
        Ok(head)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.bytes()
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| Error::BadUtf8),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Error::BadUtf8),
        }
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Ok(match self.bytes()? {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        self.fill()?;
        let (&byte, rest) = self.chunk.split_first().ok_or_else(|| self.eof())?;
        self.chunk = rest;
        Ok(byte)
    }

    #[inline]
    fn read_slice(&mut self, into: &mut [u8]) -> Result<()> {
        if let Some((head, rest)) = self.chunk.split_at_checked(into.len()) {
            into.copy_from_slice(head);
            self.chunk = rest;
            return Ok(());
        }
        if into.len() as u64 > self.total() {
            return Err(self.eof());
        }
        for byte in into {
            *byte = self.read_u8()?;
        }
        Ok(())
    }
}

/// Unpacks the bytes of a compressed section.
pub(super) fn unpacked(packed: &FileBytes, range: &object::read::CompressedFileRange) -> io::Result<Vec<u8>> {
    let (packed_size, size) = (range.compressed_size, range.uncompressed_size);
    packed.allowance().take(packed_size)?;
    packed.allowance().take(size)?;
    let mut data = Vec::new();
    data.try_reserve_exact(packed_size as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    data.resize(packed_size as usize, 0);
    packed.read_exact(&mut data, range.offset)?;
    let data = object::read::CompressedData { format: range.format, data: &data, uncompressed_size: size };
    let unpacked = data.decompress().map_err(io::Error::other)?.into_owned();
    packed.allowance().give_back(packed_size);
    Ok(unpacked)
}
