//! Headers and tables of a file.

use object::read::ReadCacheOps;

use super::bytes::{Allowance, FileBytes};

/// A file for [`object::ReadCache`], which reads each header and table as a whole into its memory.
pub(super) struct Tables<'a> {
    bytes: &'a FileBytes,
    at: u64,
    taken: UsedAllowance,
}

impl<'a> Tables<'a> {
    pub(super) fn of(bytes: &'a FileBytes) -> Self {
        Self { bytes, at: 0, taken: UsedAllowance { allowance: bytes.allowance().clone(), bytes: 0 } }
    }
}

/// Bytes of the allowance that are returned when this is dropped.
struct UsedAllowance {
    allowance: Allowance,
    bytes: u64,
}

impl Drop for UsedAllowance {
    fn drop(&mut self) {
        self.allowance.give_back(self.bytes);
    }
}

impl ReadCacheOps for Tables<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.bytes.len())
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, ()> {
        let len = self.bytes.len().saturating_sub(self.at).min(into.len() as u64) as usize;
        self.read_exact(&mut into[..len])?;
        Ok(len)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), ()> {
        self.taken.allowance.take(into.len() as u64).map_err(drop)?;
        self.taken.bytes += into.len() as u64;
        self.bytes.read_exact(into, self.at).map_err(drop)?;
        self.at = self.at.saturating_add(into.len() as u64);
        Ok(())
    }
}
