//! The worker of a request: one thread that takes the requested profile and writes it to the client.
//!
//! ```text
//!   handler ── job ──► Worker: take, find names, write ──(16 pieces)──► Body ──► the program's server
//!      ▲                 │
//!      └─── head ────────┘
//! ```
//!
//! One worker at a time has the *turn*: it computes or writes. A worker gives the turn up while it waits: for its
//! `seconds=`, for names, or for a slow client. A profile of ordinary size fits into the channel of pieces, so its
//! worker ends at once, however slow the client is. A worker whose client takes no piece for ten seconds ends.
//!
//! The receiver of the pieces is held first by the handler, then by the body. Both drop it when the client is gone,
//! which ends every wait of the worker and fails its next write.
//!
//! A worker waits for its client, for names and for its `seconds=` by sleeping in short steps, and polls in between. So
//! these waits appear as sleeps in the traces and profiles of the program, where a wait for a condition would be counted
//! as one of the program's waits.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use rtprof_runtime::hidden::{self, Calls};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

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

pub(crate) struct Worker {
    /// Used once: by [`Worker::begin`], or for the error of the job.
    head: Option<oneshot::Sender<Result<Head, Refusal>>>,
    pieces: mpsc::Sender<Piece>,
    /// Receives a message when the client has taken the last piece.
    taken: oneshot::Receiver<()>,
    turns: Arc<Semaphore>,
    turn: Option<OwnedSemaphorePermit>,
    budget: Arc<Budget>,
    /// The account of the work since the worker first had the turn.
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

/// Starts a worker that does `job`, and returns the answer when the job begins it. `permit` is held until the job has
/// written everything.
pub(crate) async fn answer(
    link: &Link,
    permit: Permit,
    job: impl FnOnce(&mut Worker) -> Result<(), Failure> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let (sender, pieces) = mpsc::channel(WAITING);
    let (head, begun) = oneshot::channel();
    let (told, taken) = oneshot::channel();
    let (turns, budget) = (link.turns(), link.budget());
    let work = move || {
        let mut worker = Worker {
            head: Some(head),
            pieces: sender,
            taken,
            turns,
            turn: None,
            budget,
            account: None,
            permit: Some(permit),
            has_ended: false,
        };
        let result = job(&mut worker);
        worker.end(result);
    };
    link.spawn_thread(work).map_err(|error| Refusal::busy(format!("no thread for the capture: {error}")))?;
    // If the channel closes without a message, the worker has panicked.
    let head = begun.await.map_err(|_| not_collected())??;
    Ok(head(Body::stream(pieces, told)))
}

pub(crate) fn not_collected() -> Refusal {
    Refusal::internal("failed to collect profile")
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone")
}

impl Worker {
    /// Waits until no other worker has the turn. A worker that gives way to the program continues without the turn,
    /// because it would keep the others waiting. Fails when the client is gone.
    pub(crate) fn take_turn(&mut self) -> io::Result<()> {
        let gives_way = self.account.as_ref().is_some_and(Account::gives_way);
        if self.turn.is_none() && !gives_way {
            // Turns are given in the order of arrival. The semaphore is never closed.
            let turn = wait_for_turn(self.turns.clone().acquire_owned(), self.pieces.closed());
            self.turn = turn.and_then(Result::ok);
        }
        if self.pieces.is_closed() {
            return Err(gone());
        }
        self.account.get_or_insert_with(|| Account::open(&self.budget));
        Ok(())
    }

    /// Gives the turn up and waits for `future`, which needs no runtime. Returns `None` if `limit` passes first. Fails
    /// when the client is gone.
    pub(crate) fn wait_for<T>(
        &mut self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> io::Result<Option<T>> {
        self.turn = None;
        wait_for(&self.pieces, Some(limit), future)
    }

    /// Gives the turn up and sleeps for `length`. Fails when the client is gone.
    pub(crate) fn sleep(&mut self, length: Duration) -> io::Result<()> {
        self.wait_for(length, std::future::pending::<()>()).map(drop)
    }

    /// Takes the turn and begins the answer; later writes go into its body.
    pub(crate) fn begin(
        &mut self,
        head: impl FnOnce(Body) -> Response<Body> + Send + 'static,
    ) -> io::Result<()> {
        self.take_turn()?;
        self.settle();
        self.send_head(head)
    }

    /// Begins the answer of a job that mostly waits from here on: gives the turn up, and leaves the job out of the
    /// budget.
    pub(crate) fn begin_waiting(
        &mut self,
        head: impl FnOnce(Body) -> Response<Body> + Send + 'static,
    ) -> io::Result<()> {
        (self.turn, self.account) = (None, None);
        self.send_head(head)
    }

    fn send_head(&mut self, head: impl FnOnce(Body) -> Response<Body> + Send + 'static) -> io::Result<()> {
        match self.head.take() {
            Some(begun) => begun.send(Ok(Box::new(head))).map_err(|_| gone()),
            None => Ok(()),
        }
    }

    /// Ends the answer, and waits until the client has taken all of it. Fails if the client is gone, or takes no piece
    /// for too long. The permit and the turn are free meanwhile.
    pub(crate) fn deliver(&mut self) -> io::Result<()> {
        (self.permit, self.turn) = (None, None);
        self.send(Piece::End)?;
        self.has_ended = true;
        loop {
            let room = self.pieces.capacity();
            match wait_for(&self.pieces, Some(STALL), &mut self.taken)? {
                Some(taken) => return taken.map_err(|_| gone()),
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
        (self.permit, self.turn) = (None, None);
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
            if account.gives_way() {
                self.turn = None;
            }
        }
    }

    fn send(&mut self, piece: Piece) -> io::Result<()> {
        match self.pieces.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(gone()),
            Err(TrySendError::Full(piece)) => {
                // From here on the client sets the pace, so the turn is given up.
                self.turn = None;
                match wait_for(&self.pieces, Some(STALL), self.pieces.reserve())? {
                    Some(Ok(room)) => {
                        room.send(piece);
                        Ok(())
                    }
                    _ => Err(gone()),
                }
            }
        }
    }
}

/// Waits for the turn, which another worker hands on, or until `gone` is ready: then the result is `None`. The wait is
/// hidden: it is not one of the program's, and steps of sleep would leave the turn unused.
fn wait_for_turn<T>(turn: impl Future<Output = T>, gone: impl Future<Output = ()>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (mut turn, mut gone) = (pin!(turn), pin!(gone));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if gone.as_mut().poll(&mut context).is_ready() {
            return None;
        }
        match turn.as_mut().poll(&mut context) {
            Poll::Ready(turn) => return Some(turn),
            Poll::Pending => hidden::hiding(Calls::OWN, thread::park),
        }
    }
}

/// Waits for `future`, which needs no runtime. Returns `None` if `limit` passes first. Fails when the receiver of
/// `pieces` is gone.
fn wait_for<T>(
    pieces: &mpsc::Sender<Piece>,
    limit: Option<Duration>,
    future: impl Future<Output = T>,
) -> io::Result<Option<T>> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
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

impl Write for Worker {
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
    use std::future::poll_fn;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_turn_is_handed_on_by_its_holder() {
        let (hand_on, mut turn) = oneshot::channel();
        let (polls, polled) = channel();
        let (results, result) = channel();
        let worker = thread::spawn(move || {
            let turn = poll_fn(|context| {
                let turn = pin!(&mut turn).poll(context);
                polls.send(turn.is_pending()).expect("the test waits");
                turn
            });
            let turn = wait_for_turn(turn, std::future::pending());
            results.send(turn).expect("the test waits");
        });
        assert_eq!(polled.recv(), Ok(true), "the turn is held");
        hand_on.send("the turn").expect("the worker waits");
        assert_eq!(result.recv_timeout(Duration::from_secs(60)), Ok(Some(Ok("the turn"))));
        worker.join().expect("it ends well");
    }

    #[test]
    fn a_worker_whose_client_leaves_does_not_wait_for_the_turn() {
        let (pieces, client) = mpsc::channel::<Piece>(1);
        let (results, result) = channel();
        let (waits, waiting) = channel();
        let worker = thread::spawn(move || {
            let turn = poll_fn(|_| {
                waits.send(()).expect("the test waits");
                Poll::<()>::Pending
            });
            results.send(wait_for_turn(turn, pieces.closed())).expect("the test waits");
        });
        waiting.recv().expect("the turn is never free");
        drop(client);
        assert_eq!(result.recv_timeout(Duration::from_secs(60)), Ok(None));
        worker.join().expect("it ends well");
    }
}
