//! `/debug/pprof/symbol`: names of addresses, for readers of a profile without names. Go: `pprof.Symbol`.

use std::error::Error;
use std::future::poll_fn;
use std::io::{self, BufWriter, Write};
use std::pin::pin;
use std::sync::Arc;

use bytes::Buf;
use rtprof_pprof_out::{NameSearch, Symbolization, find_function_names, function_names};
use rtprof_runtime::hook;

use crate::answer;
use crate::body::MAX_PIECE;
use crate::work::name_search::{self, Patience, Unnamed};
use crate::work::response_writer::{Failure, ResponseWriter};

/// The maximum length of a body; about 50,000 addresses.
const MAX_BODY: usize = 1 << 20;
/// The maximum length of a word, as in Go, whose reader has a buffer of this size.
const MAX_WORD: usize = 4096;

/// Writes the names of addresses.
pub(crate) fn answer(response: &mut ResponseWriter, words: Words) -> Result<(), Failure> {
    response.charge()?;
    let addresses = words.addresses();
    name_search::find(response, &addresses, Patience::UntilFound)?;
    let named = addresses.named();
    response.begin(|body| answer::of_type(answer::TEXT, body))?;
    Ok(named.write(response)?)
}

/// The part of a request's body that was read, and the reason why the rest was not.
pub(crate) struct Words {
    pub(crate) bytes: Vec<u8>,
    pub(crate) error: Option<String>,
}

impl Words {
    /// Returns the words of a query.
    pub(crate) fn of_query(uri: &http::Uri) -> Self {
        Self { bytes: uri.query().unwrap_or_default().as_bytes().to_vec(), error: None }
    }

    /// Reads the words of a body, on the caller's thread, because the caller owns the connection.
    pub(crate) async fn of_body<B>(body: B) -> Self
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut body = pin!(body);
        let mut words = Self { bytes: Vec::new(), error: None };
        while let Some(frame) = poll_fn(|context| http_body::Body::poll_frame(body.as_mut(), context)).await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(mut data)) => {
                    while data.has_remaining() && words.bytes.len() < MAX_BODY {
                        let chunk = data.chunk();
                        let taken = chunk.len().min(MAX_BODY - words.bytes.len());
                        words.bytes.extend_from_slice(&chunk[..taken]);
                        data.advance(taken);
                    }
                    if data.has_remaining() {
                        words.error = Some("http: request body too large".to_owned());
                        break;
                    }
                }
                // Trailers.
                Ok(Err(_)) => {}
                Err(error) => {
                    words.error = Some(error.into().to_string());
                    break;
                }
            }
        }
        words
    }

    /// Parses the addresses among the words.
    pub(crate) fn addresses(self) -> Addresses {
        let _workspace = hook::workspace();
        let mut addresses = Vec::new();
        let mut error = self.error;
        for word in self.bytes.split(|&byte| byte == b'+') {
            // Go's reader returns this much of a word that does not fit into its buffer.
            let read = &word[..word.len().min(MAX_WORD)];
            addresses.extend(address(read));
            if word.len() >= MAX_WORD {
                error = Some("bufio: buffer full".to_owned());
                break;
            }
        }
        Addresses { addresses, error }
    }
}

/// The requested addresses.
pub(crate) struct Addresses {
    addresses: Vec<usize>,
    error: Option<String>,
}

impl Unnamed for Addresses {
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        find_function_names(&self.addresses, at_end)
    }
}

impl Addresses {
    /// Resolves the addresses to the names that are known.
    fn named(self) -> NamedAddresses {
        let _workspace = hook::workspace();
        let names = function_names(&self.addresses, Symbolization::Known);
        let named = |(address, name): (usize, Option<_>)| Some((address, name?));
        let names = self.addresses.into_iter().zip(names).filter_map(named).collect();
        NamedAddresses { names, error: self.error }
    }
}

/// Addresses with the names that are known, and the error of reading the request.
struct NamedAddresses {
    /// The names are shared, so that an answer of many megabytes takes little memory until it is written.
    names: Vec<(usize, Arc<str>)>,
    error: Option<String>,
}

impl NamedAddresses {
    /// Writes a line that says that names are available, then a line for each address that has a name.
    fn write(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut w = BufWriter::with_capacity(MAX_PIECE, w);
        w.write_all(b"num_symbols: 1\n")?;
        for (address, name) in &self.names {
            writeln!(w, "{address:#x} {name}")?;
        }
        if let Some(error) = &self.error {
            writeln!(w, "reading request: {error}")?;
        }
        w.flush()
    }
}

/// Parses a number other than 0, in the base that its prefix gives. Go: `strconv.ParseUint` with base 0.
fn address(word: &[u8]) -> Option<usize> {
    let word = std::str::from_utf8(word).ok()?;
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', b'b' | b'B', ..] => (&word[2..], 2),
        [b'0', b'o' | b'O', ..] => (&word[2..], 8),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    // `from_str_radix` would accept a sign.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    usize::from_str_radix(digits, radix).ok().filter(|&address| is_number && address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn known() -> usize {
        std::hint::black_box(1)
    }

    fn text_for(words: Words) -> String {
        let mut text = Vec::new();
        let addresses = words.addresses();
        let (sender, found) = std::sync::mpsc::channel();
        let _search = addresses.find_names(move || sender.send(()).unwrap());
        found.recv().unwrap();
        addresses.named().write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn names_of(bytes: impl Into<Vec<u8>>) -> String {
        text_for(Words { bytes: bytes.into(), error: None })
    }

    #[test]
    fn numbers_are_those_of_parse_uint() {
        let cases = [
            ("0x1F", Some(31)),
            ("0X1f", Some(31)),
            ("31", Some(31)),
            ("0b11", Some(3)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0", None),
            ("0x0", None),
            ("", None),
            ("0x", None),
            ("x", None),
            ("-1", None),
            ("1f", None),
            ("0x-1", None),
            ("0x+1", None),
            (" 1", None),
            ("0x10000000000000000", None),
        ];
        for (word, expected) in cases {
            assert_eq!(address(word.as_bytes()), expected, "{word}");
        }
        assert_eq!(address(b"\xff1"), None);
    }

    #[test]
    fn names_come_back_with_their_addresses() {
        assert_eq!(known(), 1);
        let here = known as fn() -> usize as usize;
        let line = format!("{here:#x} rtprof_http::endpoints::symbol::tests::known\n");
        assert_eq!(names_of(format!("{here:#x}")), format!("num_symbols: 1\n{line}"));
        assert_eq!(names_of(format!("{here}+0x1+junk+{here:#X}+")), format!("num_symbols: 1\n{line}{line}"));
        for nothing in ["", "+", "+++", "0x0+0", "nothing of the kind"] {
            assert_eq!(names_of(nothing), "num_symbols: 1\n", "{nothing}");
        }
    }

    #[test]
    fn what_was_not_read_is_said() {
        let here = known as fn() -> usize as usize;
        let long = format!("{here}+{}+{here}", "1".repeat(5000));
        let expected = format!(
            "num_symbols: 1\n{here:#x} rtprof_http::endpoints::symbol::tests::known\nreading request: bufio: buffer full\n"
        );
        assert_eq!(names_of(long), expected);
        let words = Words { bytes: b"0x1".to_vec(), error: Some("connection reset".into()) };
        assert_eq!(text_for(words), "num_symbols: 1\nreading request: connection reset\n");
    }
}
