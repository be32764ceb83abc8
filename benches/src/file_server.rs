//! A file server on hyper and `tokio::fs`: most of its calls go through tokio's pool of blocking threads.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::fs::{self, File};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::io::ReaderStream;

use crate::async_work::Spawn;

/// The bytes that are read from a file at a time.
const CHUNK: usize = 64 << 10;

type Body = BoxBody<Bytes, io::Error>;

/// The server, which runs until it is dropped.
pub struct FileServer {
    address: SocketAddr,
    _runtime: Runtime,
}

impl FileServer {
    /// Starts a server of the files below `folder`. `spawn` starts a task for each connection.
    ///
    /// # Panics
    /// When no port is free, or no thread.
    pub fn start(folder: &Path, spawn: impl Spawn) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        runtime.spawn(accept(listener, Arc::from(folder), spawn));
        Self { address, _runtime: runtime }
    }

    /// Returns the port, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

async fn accept(listener: TcpListener, folder: Arc<Path>, spawn: impl Spawn) {
    while let Ok((stream, _)) = listener.accept().await {
        // Without it the kernel may hold back the rest of an answer; the measurement goes on all the same.
        let _ = stream.set_nodelay(true);
        let folder = folder.clone();
        spawn.spawn(async move {
            let service = service_fn(|request| answer(folder.clone(), request));
            // An error is a client that has gone.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(folder: Arc<Path>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let path = folder.join(request.uri().path().trim_start_matches('/'));
    let Ok(about) = fs::metadata(&path).await else {
        return Ok(response(StatusCode::NOT_FOUND, 0, whole(String::new())));
    };
    if about.is_dir() {
        let list = list(path).await?;
        return Ok(response(StatusCode::OK, list.len() as u64, whole(list)));
    }
    let chunks = ReaderStream::with_capacity(File::open(&path).await?, CHUNK);
    Ok(response(StatusCode::OK, about.len(), StreamBody::new(chunks.map_ok(Frame::data)).boxed()))
}

/// Lists a folder: a line for each entry.
async fn list(path: PathBuf) -> io::Result<String> {
    let mut list = String::new();
    let mut entries = fs::read_dir(path).await?;
    while let Some(entry) = entries.next_entry().await? {
        let about = entry.metadata().await?;
        // Text in memory takes everything.
        let _ = writeln!(list, "{} {}", about.len(), entry.file_name().display());
    }
    Ok(list)
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed()
}

fn response(status: StatusCode, length: u64, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}
