//! Compression of traces, whose formats have none.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};
use http::{Response, request};
use rtprof_runtime::hook;

use crate::answer;
use crate::body::Body;
use crate::request::query::Query;

/// How a trace is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Plain,
    /// Compressed on the way: the client unpacks it.
    Transfer,
    /// As a compressed file.
    File,
}

impl Coding {
    /// Returns how this request wants it: `gzip=1` for a compressed file, else as its `Accept-Encoding` allows.
    pub(crate) fn of(head: &request::Parts, query: &Query<'_>) -> Self {
        match query.number("gzip") > 0 {
            true => Self::File,
            false if accepts_gzip(&head.headers) => Self::Transfer,
            false => Self::Plain,
        }
    }

    /// Returns an answer that the client saves as a file of this name, or of this name and `.gz`.
    pub(crate) fn attachment(self, name: &str, body: Body) -> Response<Body> {
        let mut response = match self {
            Self::File => answer::attachment(&format!("{name}.gz"), body),
            Self::Plain | Self::Transfer => answer::attachment(name, body),
        };
        if self == Self::Transfer {
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        response
    }

    /// Calls `write` with a writer whose bytes reach `w` in this coding.
    pub(crate) fn write<W: Write, E: From<io::Error>>(
        self,
        w: W,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Plain => {
                let mut w = w;
                write(&mut w)
            }
            Self::Transfer | Self::File => {
                // It competes with the program for the processor.
                let mut gzip = {
                    let _workspace = hook::workspace();
                    GzEncoder::new(w, Compression::fast())
                };
                write(&mut gzip)?;
                gzip.finish()?;
                Ok(())
            }
        }
    }
}

/// Whether a request accepts an answer in gzip: RFC 9110, section 12.5.3.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    // The weights of gzip, of a plain answer, and of all that are not named.
    let (mut gzip, mut plain, mut others) = (None::<f32>, None, None);
    for coding in lists.flat_map(|list| list.split(',')) {
        let (name, parameter) = coding.split_once(';').unwrap_or((coding, ""));
        let parameter = parameter.trim().to_ascii_lowercase();
        let weight = parameter.strip_prefix("q=").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        match &*name.trim().to_ascii_lowercase() {
            "gzip" | "x-gzip" => gzip = Some(gzip.map_or(weight, |other| weight.max(other))),
            "identity" => plain = Some(weight),
            "*" => others = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(others).unwrap_or(0.0);
    gzip > 0.0 && gzip >= plain.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn gzip_is_sent_if_it_is_accepted() {
        let cases = [
            ("", false),
            ("gzip", true),
            ("GZip", true),
            ("deflate, gzip;q=1.0, *;q=0.5", true),
            ("br, zstd", false),
            ("gzip;q=0", false),
            ("gzip;Q=0", false),
            ("gzip; q=0.000, *", false),
            ("*", true),
            ("*;q=0", false),
            ("identity", false),
            ("gzip;q=x", false),
            ("gzipped", false),
            ("x-gzip;q=0, gzip", true),
            ("identity, gzip;q=0.1", false),
            ("identity;q=0.5, gzip", true),
        ];
        for (accepted, expected) in cases {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            assert_eq!(accepts_gzip(&headers), expected, "{accepted:?}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn what_is_written_is_compressed_whole() {
        let bytes: Vec<u8> = (0..200_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for coding in [Coding::Plain, Coding::Transfer, Coding::File] {
            let mut sent = Vec::new();
            coding.write(&mut sent, |w| w.write_all(&bytes)).expect("a vector takes everything");
            let read = match coding {
                Coding::Plain => sent,
                _ => {
                    let mut read = Vec::new();
                    flate2::read::GzDecoder::new(&*sent).read_to_end(&mut read).expect("it is whole");
                    assert!(sent.len() < bytes.len() / 2);
                    read
                }
            };
            assert!(read == bytes, "{coding:?}");
        }
    }
}
