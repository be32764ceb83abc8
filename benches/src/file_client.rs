//! The load of a [file server](crate::file_server): clients that ask for small and large files and for lists.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
/// The requests of a client, again and again.
const REQUESTS: [&str; 8] =
    ["small/1", "small/2", "large", "small/3", "small", "small/4", "small/5", "large"];
const SMALL_FILES: usize = 20;
const SMALL: usize = 4 << 10;
const LARGE: usize = 512 << 10;

/// A folder with the files that the clients ask for, which is removed when this is dropped.
pub struct Files(PathBuf);

impl Files {
    /// Makes the folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make() -> io::Result<Self> {
        let files = Self(std::env::temp_dir().join(format!("rtprof-bench-files-{}", std::process::id())));
        fs::create_dir_all(files.path().join("small"))?;
        for number in 0..SMALL_FILES {
            fs::write(files.path().join(format!("small/{number}")), vec![b's'; SMALL])?;
        }
        fs::write(files.path().join("large"), vec![b'l'; LARGE])?;
        Ok(files)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for such files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lets clients send one request after the other to the server at `port` for `duration`, with a `pause` after each.
/// Returns the latency of each request in microseconds.
///
/// # Errors
/// When the server does not answer as it should.
///
/// # Panics
/// Does not: the clients return their errors.
pub fn load(port: u16, duration: Duration, pause: Duration) -> io::Result<Vec<f64>> {
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|first| scope.spawn(move || ask(port, is_over, first * 2, pause))).collect();
        sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        let mut latencies = vec![];
        for client in clients {
            latencies.extend(client.join().expect("a client returns its errors")?);
        }
        Ok(latencies)
    })
}

/// Sends requests, the one with the number `first` first.
fn ask(port: u16, is_over: &AtomicBool, first: usize, pause: Duration) -> io::Result<Vec<f64>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut latencies = vec![];
    for path in REQUESTS.iter().cycle().skip(first) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        get(&mut stream, path)?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
        if !pause.is_zero() {
            sleep(pause);
        }
    }
    Ok(latencies)
}

/// Sends a request, and reads the answer.
fn get(stream: &mut BufReader<TcpStream>, path: &str) -> io::Result<()> {
    stream.get_mut().write_all(format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(format!("{path}: {line:?}")));
    }
    let mut length = None;
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line)?;
        if let Some(("content-length", value)) = line.split_once(':') {
            length = value.trim().parse().ok();
        }
    }
    let length: u64 = length.ok_or_else(|| io::Error::other(format!("{path}: no length")))?;
    if io::copy(&mut stream.take(length), &mut io::sink())? == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
