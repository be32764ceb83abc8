//! The body of an answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

/// How long a client may take no piece before its answer is given up.
pub(crate) const STALL: Duration = Duration::from_secs(10);
/// The maximum length of a piece; exports write pieces of this length.
pub(crate) const MAX_PIECE: usize = 64 << 10;

/// The body of an answer: complete, or in pieces as a capture writes them. Dropping the body before its end ends the
/// capture.
///
/// A body that ends in an error is not a whole profile. Servers then close the connection, so that the client notices.
pub struct Body(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(Stream),
    Ended,
}

/// Pieces from a capture.
struct Stream {
    pieces: mpsc::Receiver<Piece>,
    /// Receives a message when the server has taken the last piece.
    delivered: Option<oneshot::Sender<()>>,
}

/// A message from a capture.
pub(crate) enum Piece {
    Bytes(Bytes),
    /// The end of the body. If the channel closes without this piece, the capture did not reach its end.
    End,
    Failed(io::Error),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Whole(Some(bytes.into())))
    }

    /// Makes a body of the pieces that arrive in the channel. A message is sent to `delivered` when the server has taken
    /// the last piece; `delivered` is dropped if that never happens.
    pub(crate) fn stream(pieces: mpsc::Receiver<Piece>, delivered: oneshot::Sender<()>) -> Self {
        Self(Inner::Stream(Stream { pieces, delivered: Some(delivered) }))
    }

    /// Makes an empty body of unknown length: the answer to a HEAD whose GET would capture.
    pub(crate) fn left_out() -> Self {
        let (ended, pieces) = mpsc::channel(1);
        let sent = ended.try_send(Piece::End);
        debug_assert!(sent.is_ok(), "the channel has room for one");
        Self::stream(pieces, oneshot::channel().0)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let stream = match &mut self.0 {
            Inner::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Stream(stream) => stream,
            Inner::Ended => return Poll::Ready(None),
        };
        let Poll::Ready(piece) = stream.pieces.poll_recv(context) else { return Poll::Pending };
        let error = match piece {
            Some(Piece::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                if let Some(delivered) = stream.delivered.take() {
                    // The receiver is gone if the server is being shut down.
                    let _ = delivered.send(());
                }
                self.0 = Inner::Ended;
                return Poll::Ready(None);
            }
            Some(Piece::Failed(error)) => error,
            None => io::Error::new(io::ErrorKind::UnexpectedEof, "the capture ended before its profile did"),
        };
        self.0 = Inner::Ended;
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(bytes) => bytes.is_none(),
            Inner::Stream(_) => false,
            Inner::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Inner::Stream(_) => SizeHint::default(),
            Inner::Ended => SizeHint::with_exact(0),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Inner::Whole(_) => "Body(whole)",
            Inner::Stream(_) => "Body(stream)",
            Inner::Ended => "Body(ended)",
        })
    }
}
