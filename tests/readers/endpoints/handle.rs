//! `handle` in the program's own service: it works under any executor, without blocking it, and ends when the client
//! loses interest.
//!
//! The executor here is minimal, and has neither timers nor sockets.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, park, sleep};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use rtprof::http::{Body, Config, Handler, handle};
use test_support::profile::Profile;
use test_support::{child, until};

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the processor time of this thread, or of the whole process.
fn worked(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Polls until the future is ready. Adds the processor time of the polls to `polls`.
fn block_on<T>(mut future: Pin<&mut impl Future<Output = T>>, polls: &mut Duration) -> T {
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        let before = worked(libc::CLOCK_THREAD_CPUTIME_ID);
        let polled = future.as_mut().poll(&mut context);
        *polls += worked(libc::CLOCK_THREAD_CPUTIME_ID) - before;
        match polled {
            Poll::Ready(done) => return done,
            Poll::Pending => park(),
        }
    }
}

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    block_on(pin!(future), &mut Duration::default())
}

pub(super) fn get(path: &str) -> Request<String> {
    Request::get(format!("/debug/pprof/{path}")).body(String::new()).expect("a request")
}

/// Returns the next piece of a body; `None` at its end.
async fn piece(body: &mut Body) -> Option<io::Result<Bytes>> {
    let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    Some(frame.map(|frame| frame.into_data().expect("there are no trailers")))
}

pub(super) async fn whole(mut body: Body) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = piece(&mut body).await {
        bytes.extend_from_slice(&piece?);
    }
    assert!(body.is_end_stream());
    Ok(bytes)
}

/// Returns the status and the body of an answer.
pub(super) fn ask<B>(handler: &Handler, request: Request<B>) -> (u16, Vec<u8>)
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    run(async {
        let answer = handler.handle(request).await;
        (answer.status().as_u16(), whole(answer.into_body()).await.expect("it is whole"))
    })
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().expect("a text"))
}

#[test]
fn it_needs_no_runtime() {
    child::isolated("it_needs_no_runtime", || {
        let answer = run(handle(get("heap")));
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "content-disposition"), Some("attachment; filename=\"heap\""));
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"));
        Profile::read(&run(whole(answer.into_body())).expect("it is whole"));
        // The timers do not come from the executor either.
        let (status, body) = ask(&Handler::default(), get("threadcreate?seconds=1"));
        assert_eq!(status, 200);
        assert!(Profile::read(&body).duration_nanos >= 1_000_000_000);

        let answer = run(handle(get("unknown")));
        assert_eq!((answer.status().as_u16(), header(&answer, "x-go-pprof")), (404, Some("1")));
        assert_eq!(run(whole(answer.into_body())).expect("it is whole"), b"Unknown profile\n");
        let request = Request::delete("/debug/pprof/heap").body(String::new()).expect("a request");
        assert_eq!(header(&run(handle(request)), "allow"), Some("GET, HEAD"));
        for elsewhere in ["/", "/heap", "/debug/pprofx"] {
            let request = Request::get(elsewhere).body(String::new()).expect("a request");
            assert_eq!(
                ask(&Handler::default(), request),
                (404, b"404 page not found\n".to_vec()),
                "{elsewhere}"
            );
        }
        // Checking the `Host` is the service's task, but checking the token is not.
        let foreign = || Request::get("http://service.example/debug/pprof/symbol");
        let request = foreign().body(String::new()).expect("a request");
        assert_eq!(ask(&Handler::default(), request), (200, b"num_symbols: 1\n".to_vec()));
        let handler = Handler::new(Config { token: Some("s3cret".into()), ..Config::default() });
        assert_eq!(ask(&handler, foreign().body(String::new()).expect("a request")).0, 401);
        let request =
            foreign().header("authorization", "Bearer s3cret").body(String::new()).expect("a request");
        assert_eq!(ask(&handler, request).0, 200);
        let handler = Handler::new(Config { cmdline: true, max_seconds: 3, ..Config::default() });
        assert_eq!(ask(&handler, get("cmdline")).0, 200);
        assert_eq!(ask(&handler, get("heap?seconds=4")).0, 400);
    });
}

/// A body that arrives in pieces with pauses, and may break off.
struct Pieces {
    left: Vec<Result<&'static str, String>>,
    was_pending: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        self.was_pending = !self.was_pending;
        if self.was_pending {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = if self.left.is_empty() { None } else { Some(self.left.remove(0)) };
        Poll::Ready(next.map(|piece| piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

#[test]
fn request_bodies_of_any_kind() {
    child::isolated("request_bodies_of_any_kind", || {
        let here = request_bodies_of_any_kind as fn() as usize;
        let name = concat!(module_path!(), "::request_bodies_of_any_kind");
        let post = |left: &[Result<&'static str, String>]| {
            let body = Pieces { left: left.to_vec(), was_pending: false };
            let request = Request::post("/debug/pprof/symbol").body(body).expect("a request");
            let (status, answer) = ask(&Handler::default(), request);
            assert_eq!(status, 200);
            String::from_utf8(answer).expect("a text")
        };
        let text: &'static str = format!("{here:#x}+{here:#x}").leak();
        let (first, rest) = text.split_at(5);
        let line = format!("{here:#x} {name}\n");
        assert_eq!(post(&[Ok(first), Ok(""), Ok(rest)]), format!("num_symbols: 1\n{line}{line}"));
        let broken = post(&[Ok(text), Err("the line is dead".into())]);
        assert_eq!(broken, format!("num_symbols: 1\n{line}{line}reading request: the line is dead\n"));
        assert_eq!(post(&[]), "num_symbols: 1\n");
        // An endpoint that takes no body does not wait for one.
        let request = Request::post("/debug/pprof/heap").body(Never).expect("a request");
        assert_eq!(ask(&Handler::default(), request).0, 405);
    });
}

/// A body that never arrives.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[inline(never)]
fn left(depth: usize, kept: &mut Vec<Vec<u8>>) {
    turn(depth, kept);
    black_box(());
}

#[inline(never)]
fn right(depth: usize, kept: &mut Vec<Vec<u8>>) {
    turn(depth, kept);
    black_box(());
}

/// Makes each path through a tree a distinct stack.
#[inline(never)]
fn turn(depth: usize, kept: &mut Vec<Vec<u8>>) {
    if depth == 0 {
        kept.push(black_box(vec![7; 8]));
    } else {
        left(depth - 1, kept);
        right(depth - 1, kept);
    }
    black_box(());
}

/// Makes 32768 stacks of some fifty functions, the largest profile that a service has.
fn many_stacks() -> Vec<Vec<u8>> {
    let mut kept = Vec::with_capacity(1 << 15);
    rtprof::set_mem_profile_rate(1);
    turn(15, &mut kept);
    rtprof::set_mem_profile_rate(0);
    kept
}

/// A service's own thread serves its users while a capture runs elsewhere. If a step of the capture ran in a poll, the
/// polls would take a good part of all the work. What remains are channel operations, a copy of pointers, and the
/// system's cost of a wake. The test compares processor time, which does not depend on other programs.
#[test]
fn polls_take_no_time() {
    child::isolated("polls_take_no_time", || {
        let _kept = many_stacks();
        // One-time work, as the search for names, is not counted.
        run(handle(get("heap")));
        let (mut polled, before) = (Duration::ZERO, worked(libc::CLOCK_PROCESS_CPUTIME_ID));
        let answer = block_on(pin!(handle(get("heap"))), &mut polled);
        let written = block_on(pin!(whole(answer.into_body())), &mut polled).expect("it is whole");
        let all = worked(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
        println!("polls worked for {polled:?} of {all:?}");
        assert!(Profile::read(&written).sample.len() >= 20_000);
        assert!(polled * 20 < all, "{polled:?} of {all:?}");
    });
}

/// Polls the future once.
pub(super) fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends another client's request, which gets its permit only when the capture before it has ended.
fn wait_behind(handler: &Handler, end: impl FnOnce()) {
    let mut second = Box::pin(handler.handle(get("mutex?symbolize=none")));
    for _ in 0..20 {
        assert!(poll(second.as_mut()).is_pending(), "there is a place for one capture only");
        // A later request, which needs no permit, and takes the server as long.
        assert_eq!(ask(handler, get("symbol")).0, 200);
    }
    end();
    // The request would be refused after ten seconds.
    assert_eq!(run(second).status(), 200, "the capture before it did not end");
}

#[test]
fn a_dropped_future_ends_its_capture() {
    child::isolated("a_dropped_future_ends_its_capture", || {
        let handler = Handler::new(Config { max_captures: 1, ..Config::default() });
        let mut first = Box::pin(handler.handle(get("heap?seconds=500")));
        assert!(poll(first.as_mut()).is_pending());
        // The first request has its permit once a later request is answered.
        assert_eq!(ask(&handler, get("symbol")).0, 200);
        wait_behind(&handler, || drop(first));
    });
}

/// The text of so many stacks is some fifty megabytes, of which two at most wait for the client.
#[test]
fn a_dropped_body_ends_its_capture() {
    child::isolated("a_dropped_body_ends_its_capture", || {
        let _kept = many_stacks();
        let handler = Handler::new(Config { max_captures: 1, ..Config::default() });
        let mut body = run(handler.handle(get("heap?debug=1"))).into_body();
        let first = run(piece(&mut body)).expect("it has begun").expect("it is there");
        assert!(first.starts_with(b"heap profile: ") && first.len() <= 128 << 10, "{} bytes", first.len());
        wait_behind(&handler, || drop(body));
        // A body dropped before its first piece ends its capture too.
        let body = run(handler.handle(get("heap?debug=1"))).into_body();
        wait_behind(&handler, || drop(body));
    });
}

/// A client that does not read keeps no permit: after ten seconds its capture is abandoned, and its body ends with an
/// error.
#[test]
fn a_body_that_nobody_reads_fails() {
    child::isolated("a_body_that_nobody_reads_fails", || {
        let _kept = many_stacks();
        let handler = Handler::new(Config { max_captures: 1, ..Config::default() });
        let body = run(handler.handle(get("heap?debug=1"))).into_body();
        until("the permit is free", || ask(&handler, get("mutex")).0 == 200);
        let error = run(whole(body)).expect_err("a part is not taken for the whole");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        // A client that reads slowly receives the whole body.
        let mut body = run(handler.handle(get("heap?debug=1"))).into_body();
        let mut read = Vec::new();
        for _ in 0..12 {
            sleep(Duration::from_millis(100));
            read.extend_from_slice(&run(piece(&mut body)).expect("there is more").expect("it is there"));
        }
        read.extend(run(whole(body)).expect("it is whole"));
        assert!(String::from_utf8(read).expect("a text").contains("# runtime.MemStats"));
    });
}

#[inline(never)]
fn documents(count: usize) -> Vec<Vec<u8>> {
    black_box((0..count).map(|_| vec![1; 1000]).collect())
}

/// Additions that a client of `delta_heap` did not receive to the end are in the next answer.
#[test]
fn an_aborted_delta_loses_nothing() {
    child::isolated("an_aborted_delta_loses_nothing", || {
        let _kept = many_stacks();
        let handler = Handler::default();
        let delta = || run(handler.handle(get("delta_heap?symbolize=full"))).into_body();
        rtprof::set_mem_profile_rate(1);
        let first = Profile::read(&run(whole(delta())).expect("it is whole"));
        assert!(first.totals_of("endpoints::handle::turn")[0] >= 1 << 15);
        let _new = documents(5);
        drop(delta());
        let mut body = delta();
        run(piece(&mut body)).expect("it has begun").expect("it is there");
        drop(body);
        let next = Profile::read(&run(whole(delta())).expect("it is whole"));
        assert_eq!(next.totals_of("documents")[0], 6, "five and their list");
        let last = Profile::read(&run(whole(delta())).expect("it is whole"));
        assert_eq!(last.totals_of("documents")[0], 0);
        assert_eq!(last.totals_of("documents")[2], 6);
    });
}

/// A delta waits until the client of the delta before it has received everything. Other captures do not wait for that.
#[test]
fn a_delta_that_waits_keeps_no_permit() {
    child::isolated("a_delta_that_waits_keeps_no_permit", || {
        let handler = Handler::new(Config { max_captures: 1, ..Config::default() });
        let unread = run(handler.handle(get("delta_heap"))).into_body();
        let mut second = Box::pin(handler.handle(get("delta_heap")));
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!(ask(&handler, get("heap")).0, 200);
        assert!(poll(second.as_mut()).is_pending(), "heap has waited for the delta");
        run(whole(unread)).expect("it is whole");
        assert_eq!(run(second).status(), 200);
    });
}
