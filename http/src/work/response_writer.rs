//! The thread of a request, which takes the requested profile, and the writer that sends it to the client.
//!
//! ```text
//!   handler ── job ──► request thread: take, find names, write ──(16 pieces)──► Body ──► the program's server
//!      ▲                 │
//!      └─── head ────────┘
//! ```
//!
//! A profile of ordinary size fits into the channel of pieces, so the thread ends at once, however slow the client is.
//! A request thread whose client takes no piece for ten seconds ends.
//!
//! The receiver of the pieces is held first by the handler, then by the body. Both drop it when the client is gone,
//! which ends every wait of the request thread and fails its next write.
//!
//! A request thread waits for its client, for names and for its `seconds=` by sleeping in short steps, and polls in between. So
//! these waits appear as sleeps in the traces and profiles of the program, where a wait for a condition would be counted
//! as one of the program's waits.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::answer::Refusal;
use crate::body::{Body, MAX_PIECE, Piece, STALL};
use crate::work::budget::{Account, Budget};
use crate::work::engine::Link;
use crate::work::permits::Permit;

/// The first and the longest step of a wait; each step is twice as long as the previous one.
const STEPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// The maximum number of pieces that wait for the client; 1 MiB in total.
const WAITING: usize = 16;

/// Makes the response around its body.
type Head = Box<dyn FnOnce(Body) -> Response<Body> + Send>;

pub(crate) struct ResponseWriter {
    /// Used once: by [`ResponseWriter::begin`], or for the error of the job.
    head: Option<oneshot::Sender<Result<Head, Refusal>>>,
    pieces: mpsc::Sender<Piece>,
    /// Receives a message when the client has taken the last piece.
    delivered: oneshot::Receiver<()>,
    budget: Arc<Budget>,
    /// The account that the work is charged to; `None` until [`ResponseWriter::charge`], and for jobs that mostly wait.
    account: Option<Account>,
    permit: Option<Permit>,
    /// Whether the last piece was sent.
    has_ended: bool,
}

/// The reason why a job ended before it had written everything.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client receives this refusal, if the answer has not begun.
    Refused(Refusal),
    /// The client is gone, or the answer cannot be completed.
    Broken(io::Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Starts a request thread that does `job`, and returns the answer when the job begins it. `permit` is held until the job has
/// written everything.
pub(crate) async fn answer(
    link: &Link,
    permit: Permit,
    job: impl FnOnce(&mut ResponseWriter) -> Result<(), Failure> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let (sender, pieces) = mpsc::channel(WAITING);
    let (head, begun) = oneshot::channel();
    let (deliver, delivered) = oneshot::channel();
    let budget = link.budget();
    let work = move || {
        let mut response = ResponseWriter {
            head: Some(head),
            pieces: sender,
            delivered,
            budget,
            account: None,
            permit: Some(permit),
            has_ended: false,
        };
        let result = job(&mut response);
        response.end(result);
    };
    link.spawn_thread(work).map_err(|error| Refusal::busy(format!("no thread for the capture: {error}")))?;
    // If the channel closes without a message, the request thread has panicked.
    let head = begun.await.map_err(|_| not_collected())??;
    Ok(head(Body::stream(pieces, deliver)))
}

pub(crate) fn not_collected() -> Refusal {
    Refusal::internal("failed to collect profile")
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone")
}

impl ResponseWriter {
    /// Charges the work from here on to the budget. Fails when the client is gone.
    pub(crate) fn charge(&mut self) -> io::Result<()> {
        if self.pieces.is_closed() {
            return Err(gone());
        }
        self.account.get_or_insert_with(|| Account::open(&self.budget));
        Ok(())
    }

    /// Waits for `future`, which needs no runtime. Returns `None` if `limit` passes first. Fails when the client is
    /// gone.
    pub(crate) fn wait_for<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> io::Result<Option<T>> {
        wait_for(&self.pieces, limit, future)
    }

    /// Sleeps for `length`. Fails when the client is gone.
    pub(crate) fn sleep(&self, length: Duration) -> io::Result<()> {
        self.wait_for(length, std::future::pending::<()>()).map(drop)
    }

    /// Begins the answer; later writes go into its body.
    pub(crate) fn begin(
        &mut self,
        head: impl FnOnce(Body) -> Response<Body> + Send + 'static,
    ) -> io::Result<()> {
        self.charge()?;
        self.settle();
        self.send_head(head)
    }

    /// Begins the answer of a job that mostly waits from here on, which is left out of the budget.
    pub(crate) fn begin_waiting(
        &mut self,
        head: impl FnOnce(Body) -> Response<Body> + Send + 'static,
    ) -> io::Result<()> {
        self.account = None;
        self.send_head(head)
    }

    fn send_head(&mut self, head: impl FnOnce(Body) -> Response<Body> + Send + 'static) -> io::Result<()> {
        match self.head.take() {
            Some(begun) => begun.send(Ok(Box::new(head))).map_err(|_| gone()),
            None => Ok(()),
        }
    }

    /// Ends the answer, and waits until the client has taken all of it. Fails if the client is gone, or takes no piece
    /// for too long. The permit is free from here on.
    pub(crate) fn deliver(&mut self) -> io::Result<()> {
        self.permit = None;
        self.send(Piece::End)?;
        self.has_ended = true;
        loop {
            let room = self.pieces.capacity();
            match wait_for(&self.pieces, STALL, &mut self.delivered)? {
                Some(delivered) => return delivered.map_err(|_| gone()),
                None if self.pieces.capacity() == room => return Err(gone()),
                None => {}
            }
        }
    }

    /// Returns a function that says whether the client is gone, for a job that may have nothing to write for a long
    /// time.
    pub(crate) fn is_gone(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let pieces = self.pieces.clone();
        move || pieces.is_closed()
    }

    fn end(mut self, result: Result<(), Failure>) {
        self.permit = None;
        if self.has_ended {
            return;
        }
        let piece = match (result, self.head.take()) {
            (Err(Failure::Refused(refusal)), Some(begun)) => {
                // Fails if the client is gone.
                let _ = begun.send(Err(refusal));
                return;
            }
            // The client is gone.
            (_, Some(_)) => return,
            (Err(Failure::Broken(error)), None) if error.kind() == io::ErrorKind::BrokenPipe => return,
            (Ok(()), None) => Piece::End,
            (Err(Failure::Refused(_)), None) => Piece::Failed(io::Error::other("the answer had begun")),
            (Err(Failure::Broken(error)), None) => Piece::Failed(error),
        };
        let _ = self.send(piece);
    }

    fn settle(&mut self) {
        if let Some(account) = &mut self.account {
            account.settle();
        }
    }

    fn send(&mut self, piece: Piece) -> io::Result<()> {
        match self.pieces.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(gone()),
            Err(TrySendError::Full(piece)) => match wait_for(&self.pieces, STALL, self.pieces.reserve())? {
                Some(Ok(room)) => {
                    room.send(piece);
                    Ok(())
                }
                _ => Err(gone()),
            },
        }
    }
}

/// Waits for `future`, which needs no runtime. Returns `None` if `limit` passes first. Fails when the receiver of
/// `pieces` is gone.
fn wait_for<T>(
    pieces: &mpsc::Sender<Piece>,
    limit: Duration,
    future: impl Future<Output = T>,
) -> io::Result<Option<T>> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let end = Instant::now().checked_add(limit);
    let mut step = STEPS.0;
    loop {
        // Read before the poll, because a client that takes the last piece and then goes away has taken that piece.
        let is_gone = pieces.is_closed();
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Ok(Some(done));
        }
        if is_gone {
            return Err(gone());
        }
        let left = end.map_or(step, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(step.min(left));
        step = STEPS.1.min(step * 2);
    }
}

impl Write for ResponseWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.settle();
        let bytes = &bytes[..bytes.len().min(MAX_PIECE)];
        self.send(Piece::Bytes(Bytes::copy_from_slice(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    #[test]
    fn a_wait_ends_with_its_future_or_its_limit() {
        let (pieces, _client) = mpsc::channel::<Piece>(1);
        let mut polls = 0;
        let third = poll_fn(|_| {
            polls += 1;
            if polls == 3 { Poll::Ready("third") } else { Poll::Pending }
        });
        assert_eq!(wait_for(&pieces, Duration::MAX, third).expect("the client waits"), Some("third"));
        let never = wait_for(&pieces, Duration::from_millis(1), pending::<()>());
        assert_eq!(never.expect("the client waits"), None);
    }

    #[test]
    fn a_wait_ends_when_the_client_leaves() {
        let (pieces, client) = mpsc::channel::<Piece>(1);
        let mut client = Some(client);
        let leaves = poll_fn(|_| {
            client = None;
            Poll::<()>::Pending
        });
        let ended = wait_for(&pieces, Duration::MAX, leaves).expect_err("the client is gone");
        assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_a_client_takes_before_it_leaves_is_taken() {
        let (pieces, client) = mpsc::channel::<Piece>(1);
        let mut client = Some(client);
        let takes_and_leaves = poll_fn(|_| {
            client = None;
            Poll::Ready(())
        });
        assert!(wait_for(&pieces, Duration::MAX, takes_and_leaves).is_ok());
    }
}
