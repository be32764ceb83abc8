//! A client of HTTP/1.1 that hides nothing: bytes are sent as they are given, and an answer says how its body ended.
//!
//! It uses only the standard library, so that the bytes of a server are not corrected on the way, and a test can send
//! what no proper client would.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::profile::Profile;

/// Longer than the time of a server that gives way to other programs on a busy machine, and than the ten seconds for
/// which it lets a request wait.
const PATIENCE: Duration = Duration::from_secs(240);

/// How the end of a body was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is no body.
    None,
    /// After the number of bytes that the head announces.
    Length,
    /// After the last chunk.
    LastChunk,
    /// The connection was closed, and the head does not announce the length of the body.
    Close,
    /// The connection was closed, or broke down, before the end that was announced.
    CutOff,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The first line, without its end.
    pub line: String,
    pub status: u16,
    /// The headers as they were sent, in their order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub end: End,
}

impl Answer {
    /// Returns the only header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} comes twice: {self:?}");
        value
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is a text")
    }

    /// Returns the headers that a server chooses for this answer: all but the date and those of the connection.
    pub fn own_headers(&self) -> Vec<String> {
        const OTHERS: [&str; 4] = ["Date", "Connection", "Content-Length", "Transfer-Encoding"];
        let own = self.headers.iter().filter(|(name, _)| !OTHERS.contains(&name.as_str()));
        let mut own: Vec<_> = own.map(|(name, value)| format!("{name}: {value}")).collect();
        own.sort();
        own
    }
}

/// A connection.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.0.get_mut().write_all(bytes.as_ref())
    }

    /// Signals to the other side that no more bytes follow.
    pub fn end_sending(&mut self) -> Result<()> {
        self.0.get_ref().shutdown(std::net::Shutdown::Write)
    }

    /// Reads the answer to a request; the answer to a HEAD has no body. Interim answers are skipped.
    pub fn receive(&mut self, is_head: bool) -> Result<Answer> {
        let mut answer = self.head()?;
        while (100..200).contains(&answer.status) {
            answer = self.head()?;
        }
        let has_body = !is_head && answer.status != 204 && answer.status != 304;
        (answer.body, answer.end) = match has_body {
            true => self.body(&answer)?,
            false => (Vec::new(), End::None),
        };
        Ok(answer)
    }

    /// Reads the line and the headers of the next answer, also of a `100 Continue`.
    pub fn head(&mut self) -> Result<Answer> {
        let line = self.line()?;
        let mut words = line.split(' ');
        let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
        let status = words.next().and_then(|word| word.parse().ok()).filter(|_| is_http);
        let status = status.ok_or_else(|| malformed(&line))?;
        let mut headers = Vec::new();
        loop {
            let header = self.line()?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').ok_or_else(|| malformed(&header))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Answer { line, status, headers, body: Vec::new(), end: End::None })
    }

    fn body(&mut self, head: &Answer) -> Result<(Vec<u8>, End)> {
        let mut body = Vec::new();
        if head.header("Transfer-Encoding") == Some("chunked") {
            let end = match self.chunks(&mut body) {
                Err(error) if is_cut_off(&error) => End::CutOff,
                read => read.map(|()| End::LastChunk)?,
            };
            return Ok((body, end));
        }
        let Some(length) = head.header("Content-Length") else {
            return Ok(match self.0.read_to_end(&mut body) {
                Err(error) if is_cut_off(&error) => (body, End::CutOff),
                read => read.map(|_| (body, End::Close))?,
            });
        };
        let length: u64 = length.parse().map_err(|_| malformed(length))?;
        let read = (&mut self.0).take(length).read_to_end(&mut body);
        let is_whole = body.len() as u64 == length;
        Ok(match read {
            Err(error) if !is_cut_off(&error) => return Err(error),
            _ => (body, if is_whole { End::Length } else { End::CutOff }),
        })
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Result<()> {
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(());
            }
            body.extend(chunk);
        }
    }

    /// Reads the next chunk of a chunked body; the last one is empty.
    pub fn chunk(&mut self) -> Result<Vec<u8>> {
        let size = self.line()?;
        let length = u64::from_str_radix(&size, 16).map_err(|_| malformed(&size))?;
        let mut chunk = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut chunk)?;
        if chunk.len() != length as usize {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if !self.line()?.is_empty() {
            return Err(malformed("what follows a chunk"));
        }
        Ok(chunk)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None if line.is_empty() || !line.ends_with('\n') => Err(ErrorKind::UnexpectedEof.into()),
            None => Err(malformed(&line)),
        }
    }

    /// Waits for the other side, and returns whether it closes the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.0.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => is_cut_off(&error),
        }
    }
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not HTTP: {what:?}"))
}

fn is_cut_off(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// Sends bytes as they are over a new connection, and returns the answer.
pub fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Result<Answer> {
    let bytes = bytes.as_ref();
    let mut connection = Connection::open(address)?;
    connection.send(bytes)?;
    connection.receive(bytes.starts_with(b"HEAD "))
}

/// Returns the bytes of a request.
pub fn request(address: SocketAddr, method: &str, target: &str, headers: &[&str], body: &str) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text + "\r\n" + body
}

/// Sends a valid request over a new connection, and returns the answer.
#[track_caller]
pub fn ask(address: SocketAddr, method: &str, target: &str, headers: &[&str]) -> Answer {
    exchange(address, request(address, method, target, headers, ""))
        .unwrap_or_else(|error| panic!("{method} {target}: {error}"))
}

/// Returns the complete answer to a GET.
#[track_caller]
pub fn get(address: SocketAddr, target: &str) -> Answer {
    let answer = ask(address, "GET", target, &[]);
    assert!(
        matches!(answer.end, End::Length | End::LastChunk),
        "{target}: {:?}: {}",
        answer.end,
        answer.line
    );
    answer
}

/// Returns the profile that a server sends for a GET below `/debug/pprof/`, with all names unless `target` says
/// otherwise: on a busy machine they may not be found in the time that a scraper is given.
#[track_caller]
pub fn profile(address: SocketAddr, target: &str) -> Profile {
    let all = match target {
        _ if target.contains("symbolize=") => "",
        _ if target.contains('?') => "&symbolize=full",
        _ => "?symbolize=full",
    };
    let answer = get(address, &format!("/debug/pprof/{target}{all}"));
    assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
    Profile::read(&answer.body)
}
