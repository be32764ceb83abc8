//! Decodes the numbers and texts of records.

use super::invalid::Violation;

/// Reads from a position in a file.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

const MALFORMED: &str = "malformatted base-128 varint";
const CUT: &str = "failed to read trace: EOF";

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads as many bytes.
    pub(crate) fn bytes(&mut self, length: u64) -> Result<&'a [u8], Violation> {
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes[self.at..].get(..length))
            .ok_or_else(|| Violation::refused(CUT))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    /// Reads an unsigned number of seven bits a byte, the lowest first.
    pub(crate) fn value(&mut self) -> Result<u64, Violation> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte().ok_or_else(|| Violation::refused(CUT))?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Violation::refused(MALFORMED));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Violation::refused(MALFORMED))
    }

    pub(crate) fn values(&mut self, count: usize) -> Result<Vec<u64>, Violation> {
        (0..count).map(|_| self.value()).collect()
    }

    /// Reads all values in the next `length` bytes.
    pub(crate) fn values_of_length(&mut self, length: u64) -> Result<Vec<u64>, Violation> {
        let mut inner = Reader::new(self.bytes(length)?, 0);
        let mut values = Vec::new();
        while inner.at < inner.bytes.len() {
            values.push(inner.value().map_err(|_| Violation::refused(MALFORMED))?);
        }
        Ok(values)
    }

    /// Reads a text; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&mut self, length: u64) -> Result<String, Violation> {
        Ok(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Result<u64, String> {
        Reader::new(bytes, 0).value().map_err(|violation| violation.message)
    }

    #[test]
    fn numbers_have_64_bits() {
        assert_eq!(value(&[0]), Ok(0));
        assert_eq!(value(&[0x80, 0x80, 0x80, 2]), Ok(4 << 20));
        assert_eq!(value(&[0x81, 0]), Ok(1));
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(value(&largest), Ok(u64::MAX));
        largest[9] = 2;
        assert_eq!(value(&largest), Err(MALFORMED.into()));
        assert_eq!(value(&[0x80; 11]), Err(MALFORMED.into()));
        assert_eq!(value(&[0x80; 9]), Err(CUT.into()));
    }

    #[test]
    fn a_length_holds_whole_values() {
        assert_eq!(Reader::new(&[1, 0x80, 1, 7], 0).values_of_length(3).unwrap(), [1, 128]);
        assert!(Reader::new(&[1, 0x80, 1, 7], 0).values_of_length(2).is_err());
        assert!(Reader::new(&[1, 2], 0).values_of_length(3).is_err());
        assert!(Reader::new(&[1, 2], 0).text(u64::MAX).is_err());
    }
}
