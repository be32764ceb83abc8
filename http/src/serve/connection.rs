//! Connections of a server, with limits on their number, time and size.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use mio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use crate::answer;
use crate::body::Body;
use crate::handler::Handler;
use crate::request::guard;
use crate::request::query::Query;
use crate::request::route::INDEX;
use crate::serve::reactor::{Reactor, Registered, Wanted};
use crate::serve::socket::Socket;
use crate::serve::timer::TokioTimer;

/// How long a client may take for the head of a request, and how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a client may take for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The maximum length of a head.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// The pause between two attempts when the process has no descriptor left.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);
/// How often a connection whose client has ended its side is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Accepts connections until the future is dropped, or the listener is gone.
pub(crate) async fn accept(listener: Registered<TcpListener>, reactor: Reactor, handler: Handler) {
    let most = handler.config().max_connections.clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(most));
    loop {
        // The permit comes before the connection, so that connections beyond the limit wait in the system's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match poll_fn(|context| listener.poll(Wanted::Read, context, TcpListener::accept)).await {
            Ok((stream, _)) => {
                let (handler, reactor) = (handler.clone(), reactor.clone());
                tokio::spawn(async move {
                    let _place = place;
                    // An error on a connection concerns only its client.
                    let _ = serve(stream, &reactor, handler).await;
                });
            }
            Err(_) if reactor.has_ended() => return,
            Err(error) if listener.socket().is_err() => return reactor.give_up(&error),
            // The client is gone already, or no descriptors are left; neither ends the server.
            Err(_) => sleep(NO_DESCRIPTOR).await,
        }
    }
}

async fn serve(stream: TcpStream, reactor: &Reactor, handler: Handler) -> hyper::Result<()> {
    let Ok(socket) = Socket::new(stream, reactor) else { return Ok(()) };
    // On a loopback connection a browser of this machine may have been misled into the request.
    let is_local = socket.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let watch = socket.watch();
    let is_capturing = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        is_capturing.store(takes_its_time(request.uri()), Ordering::Relaxed);
        let answer = answer(request, handler.clone(), is_local);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let serving = http1::Builder::new()
        // A client may end its side after the request, as `nc -N` does, and then read the answer.
        .half_close(true)
        .timer(TokioTimer)
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // Go writes headers in this form.
        .title_case_headers(true)
        .serve_connection(socket, service);
    // A client that has ended its side during a capture of some seconds has gone, most likely.
    let has_gone = async {
        loop {
            watch.closed().await;
            if is_capturing.load(Ordering::Relaxed) {
                return;
            }
            sleep(LOOK).await;
        }
    };
    unless(has_gone, serving).await.unwrap_or(Ok(()))
}

/// Whether a request takes as long as it says, so that its answer must not outlive its client. A client that ends its side of
/// the connection cannot be told from one that has gone. Go: a handler's context ends, and only waits of `seconds` look at it.
fn takes_its_time(uri: &Uri) -> bool {
    let path = uri.path();
    path.ends_with("/profile") || path.ends_with("/trace") || Query::of(uri).value("seconds").is_some()
}

/// Returns the value of `work`, or `None` and drops it if `end` is ready first.
async fn unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    })
    .await
}

async fn answer(request: Request<Incoming>, handler: Handler, is_local: bool) -> Response<Body> {
    let (head, body) = request.into_parts();
    let guarded = guard::host(&head, &handler.config().hosts).and_then(|()| guard::site(&head.headers));
    if is_local && let Err(refusal) = guarded {
        return answer::finish(refusal.into_response());
    }
    // For users who type the address alone.
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if head.uri.path() == "/" && is_read && handler.config().token.is_none() {
        return answer::finish(answer::redirect(StatusCode::FOUND, INDEX));
    }
    handler.handle(Request::from_parts(head, InTime::new(body))).await
}

/// A request body with a deadline.
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
