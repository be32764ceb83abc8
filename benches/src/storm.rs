//! Clients that request profiles all at once, half of them slow or broken.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The outcomes of the requests of well-behaved clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answered correctly and completely.
    pub answered: usize,
    /// Refused because of too many requests (503).
    pub refused: usize,
    /// Closed, cut off or not answered in time, as is expected beyond the limit of connections.
    pub unanswered: usize,
    /// Answered incorrectly: a fault of the server.
    pub wrong: usize,
}

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.wrong += other.wrong;
    }
}

/// The requests of well-behaved clients.
const ASKED: [&str; 8] =
    ["", "heap", "allocs", "heap?debug=1", "mutex", "block", "goroutine", "heap?format=flamegraph"];

/// Keeps `clients` clients busy at `address` for `duration`. Each abandons a request after `patience`.
///
/// # Errors
/// When the runtime cannot be made.
pub fn storm(
    address: SocketAddr,
    clients: usize,
    duration: Duration,
    patience: Duration,
) -> io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let end = Instant::now() + duration;
        let clients: Vec<_> =
            (0..clients).map(|client| tokio::spawn(keep_asking(address, client, end, patience))).collect();
        let mut tally = Tally::default();
        for client in clients {
            tally.add(client.await.expect("a client does not panic"));
        }
        Ok(tally)
    })
}

async fn keep_asking(address: SocketAddr, client: usize, end: Instant, patience: Duration) -> Tally {
    let mut tally = Tally::default();
    let mut turn = client;
    while Instant::now() < end {
        turn += 1;
        let outcome = timeout(patience, one(address, client, turn)).await;
        // The slow and broken clients are not counted.
        if client % 10 >= 5 {
            continue;
        }
        match outcome {
            Ok(Ok(200)) => tally.answered += 1,
            Ok(Ok(503)) => tally.refused += 1,
            Ok(Ok(_)) => tally.wrong += 1,
            Ok(Err(_)) | Err(_) => tally.unanswered += 1,
        }
        sleep(Duration::from_millis(20)).await;
    }
    tally
}

/// Makes one request of this client's kind. Returns the status if the answer is complete.
async fn one(address: SocketAddr, client: usize, turn: usize) -> io::Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    match client % 10 {
        0..5 => whole(&mut stream, ASKED[turn % ASKED.len()]).await,
        5 => reads_slowly(&mut stream).await,
        6 => writes_slowly(&mut stream).await,
        7 => writes_nonsense(&mut stream, turn).await,
        8 => leaves_before_the_end(&mut stream, turn).await,
        _ => leaves_during_a_capture(&mut stream, turn).await,
    }
}

async fn ask(stream: &mut TcpStream, what: &str) -> io::Result<()> {
    let head = format!("GET /debug/pprof/{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await
}

async fn whole(stream: &mut TcpStream, what: &str) -> io::Result<u16> {
    ask(stream, what).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let head_end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(cut_off)? + 4;
    let head = String::from_utf8_lossy(&answer[..head_end]).to_lowercase();
    let body = &answer[head_end..];
    let is_whole = match head.split("content-length: ").nth(1) {
        Some(rest) => rest.split("\r\n").next().and_then(|length| length.parse().ok()) == Some(body.len()),
        None => body.ends_with(b"0\r\n\r\n"),
    };
    if !is_whole {
        return Err(cut_off());
    }
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_off)
}

async fn reads_slowly(stream: &mut TcpStream) -> io::Result<u16> {
    ask(stream, "allocs?debug=1").await?;
    let mut few = [0; 16];
    while stream.read(&mut few).await? > 0 {
        sleep(Duration::from_millis(250)).await;
    }
    Ok(0)
}

async fn writes_slowly(stream: &mut TcpStream) -> io::Result<u16> {
    for byte in
        b"GET /debug/pprof/heap HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".iter().chain([b'x'; 1000].iter())
    {
        stream.write_all(&[*byte]).await?;
        sleep(Duration::from_millis(250)).await;
    }
    Ok(0)
}

async fn writes_nonsense(stream: &mut TcpStream, turn: usize) -> io::Result<u16> {
    let nonsense: &[u8] = match turn % 5 {
        0 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        1 => b"GET\r\n\r\n",
        2 => b"GET /debug/pprof/heap?seconds=%zz&debug=\xff HTTP/1.1\r\nHost: \xff\r\n\r\n",
        3 => &[b'A'; 100_000],
        _ => b"POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n0x1+",
    };
    stream.write_all(nonsense).await?;
    let mut rest = Vec::new();
    timeout(Duration::from_secs(1), stream.read_to_end(&mut rest)).await??;
    Ok(0)
}

async fn leaves_before_the_end(stream: &mut TcpStream, turn: usize) -> io::Result<u16> {
    if turn.is_multiple_of(2) {
        stream.write_all(b"GET /debug/pprof/heap HTTP/1.1\r\nHost: loc").await?;
    } else {
        ask(stream, "allocs?debug=1").await?;
        let mut few = [0; 100];
        let _ = stream.read(&mut few).await?;
    }
    sleep(Duration::from_millis(50)).await;
    Ok(0)
}

async fn leaves_during_a_capture(stream: &mut TcpStream, turn: usize) -> io::Result<u16> {
    ask(stream, ["heap?seconds=30", "delta_mutex", "mutex?seconds=60"][turn % 3]).await?;
    sleep(Duration::from_millis(100 + 50 * (turn % 8) as u64)).await;
    Ok(0)
}
