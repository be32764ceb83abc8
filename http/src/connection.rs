//! Connections: how many, how long, how large.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

use crate::answer;
use crate::body::Body;
use crate::guard;
use crate::handler::Handler;
use crate::route::INDEX;
use crate::stream::STALL;

/// How long a client may take for the head of a request, and how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long it may take for the body of one.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The longest head.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// Between two tries when the process has no descriptor left.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);

/// Accepts connections until it is dropped.
pub(crate) async fn accept(listener: TcpListener, handler: Handler) {
    let most = handler.config().max_connections.clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(most));
    loop {
        // First a place, then a connection: those beyond the limit wait in the system's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handler = handler.clone();
                tokio::spawn(async move {
                    let _place = place;
                    // What goes wrong with a connection is its client's affair.
                    let _ = serve(stream, handler).await;
                });
            }
            // The client is gone already, or there are no descriptors; neither ends the server.
            Err(_) => tokio::time::sleep(NO_DESCRIPTOR).await,
        }
    }
}

async fn serve(stream: TcpStream, handler: Handler) -> hyper::Result<()> {
    // Both ends of a connection on one machine: a browser may have been led here.
    let is_local = stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(request, handler, is_local).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // As Go writes them.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(Unstalled::new(stream)), service)
        .await
}

async fn answer(request: Request<Incoming>, handler: Handler, is_local: bool) -> Response<Body> {
    let (head, body) = request.into_parts();
    if is_local && let Err(refusal) = guard::host(&head, &handler.config().hosts) {
        return answer::finish(refusal.into_response());
    }
    // For those who type the address alone. A client that reads finds out what lies here.
    if head.uri.path() == "/" && handler.config().token.is_none() {
        return answer::finish(answer::redirect(StatusCode::FOUND, INDEX));
    }
    handler.handle(Request::from_parts(head, InTime::new(body))).await
}

/// A request body that must arrive in time.
struct InTime {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl InTime {
    fn new(body: Incoming) -> Self {
        Self { body, deadline: Box::pin(tokio::time::sleep(BODY_TIME)) }
    }
}

impl http_body::Body for InTime {
    type Data = bytes::Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Some(Err("the request body did not arrive in time".into())))
    }
}

/// A stream that fails when the other side takes nothing for too long. hyper waits for it for ever.
struct Unstalled {
    stream: TcpStream,
    /// When the writing at hand has waited too long.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Unstalled {
    fn new(stream: TcpStream) -> Self {
        Self { stream, deadline: Box::pin(tokio::time::sleep(STALL)), is_waiting: false }
    }

    /// What becomes of a try to write.
    fn watched<T>(&mut self, tried: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if tried.is_ready() {
            self.is_waiting = false;
            return tried;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + STALL);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(tried, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watched(tried, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(tried, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(tried, context)
    }
}
