//! From a capture that writes to a client that reads.
//!
//! ```text
//!   writer ── ChannelWriter ──(4)──► pump ──(16 pieces)──► Body ──► whoever sends it
//! ```
//!
//! A profile of ordinary size fits into the pieces and its capture ends at once, however slow the client is. The
//! pump ends a capture whose client takes no piece for ten seconds. When the body is dropped, because the client
//! is gone, the pump ends, the next write of the capture fails, and `ChannelWriter::is_gone` says so before.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::answer::Refusal;
use crate::body::{Body, Piece};
use crate::budget::Account;
use crate::engine::{Link, WritePermit};
use crate::slots::CapturePermit;

/// How long a client may take no piece.
pub(crate) const STALL: Duration = Duration::from_secs(10);
/// The longest piece; exports write such.
pub(crate) const PIECE: usize = 64 << 10;
/// Pieces that wait for the client: 1 MiB.
const WAITING: usize = 16;
/// Pieces that wait for the pump, which is late by some where the program keeps all cores busy.
const BEFORE_PUMP: usize = 4;

/// The body of what `write` writes, by a writer that begins in its turn. `place` is kept until it has written
/// all. `taken` is told when the client has taken all of it.
pub(crate) async fn body(
    link: &Link,
    place: CapturePermit,
    taken: Option<oneshot::Sender<()>>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Body, Refusal> {
    let turn = link.turn().await?;
    streamed(link, place, taken, Some(turn), |writer| write(writer))
}

/// As [`body`], by a writer that begins at once and never has the turn: it mostly waits.
pub(crate) fn body_at_once(
    link: &Link,
    place: CapturePermit,
    write: impl FnOnce(&mut ChannelWriter<'_>) -> io::Result<()> + Send + 'static,
) -> Result<Body, Refusal> {
    streamed(link, place, None, None, write)
}

fn streamed(
    link: &Link,
    place: CapturePermit,
    taken: Option<oneshot::Sender<()>>,
    turn: Option<WritePermit>,
    write: impl FnOnce(&mut ChannelWriter<'_>) -> io::Result<()> + Send + 'static,
) -> Result<Body, Refusal> {
    let (to_pump, pumped) = mpsc::channel(BEFORE_PUMP);
    let (to_body, pieces) = mpsc::channel(WAITING);
    let has_turn = turn.is_some();
    let work = move |account| {
        let _place = place;
        let mut writer = ChannelWriter { pieces: &to_pump, turn, account };
        let end = match write(&mut writer) {
            Ok(()) => Piece::End,
            Err(error) => Piece::Failed(error),
        };
        drop(writer);
        // Fails if the client is gone, and then nobody wants to know.
        let _ = to_pump.blocking_send(end);
    };
    let writing =
        if has_turn { link.writing(|account| work(Some(account))) } else { link.waiting(|| work(None)) };
    writing.map_err(|error| Refusal::busy(format!("no thread for the capture: {error}")))?;
    link.spawn(pump(pumped, to_body));
    Ok(Body::stream(pieces, taken))
}

async fn pump(mut from: mpsc::Receiver<Piece>, to: mpsc::Sender<Piece>) {
    loop {
        let piece = tokio::select! {
            piece = from.recv() => piece,
            // Ends a capture that has nothing to write yet.
            () = to.closed() => None,
        };
        let Some(piece) = piece else { return };
        if to.send_timeout(piece, STALL).await.is_err() {
            // Left without its end, the body fails, and the connection is closed.
            return;
        }
    }
}

/// Sends what is written.
pub(crate) struct ChannelWriter<'a> {
    pieces: &'a mpsc::Sender<Piece>,
    turn: Option<WritePermit>,
    /// `None` for one that mostly waits.
    account: Option<Account>,
}

impl ChannelWriter<'_> {
    /// It has waited long enough, and goes on as a writer that has the turn.
    pub(crate) fn begin(&mut self, turn: WritePermit, account: Account) {
        (self.turn, self.account) = (Some(turn), Some(account));
    }

    /// Tells whether the client is gone, for a capture that may have nothing to write for a long time.
    pub(crate) fn is_gone(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let pieces = self.pieces.clone();
        move || pieces.is_closed()
    }
}

impl Write for ChannelWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(account) = &mut self.account {
            account.settle();
        }
        let bytes = &bytes[..bytes.len().min(PIECE)];
        let sent = match self.pieces.try_send(Piece::Bytes(Bytes::copy_from_slice(bytes))) {
            Err(TrySendError::Full(piece)) => {
                self.turn = None;
                self.pieces.blocking_send(piece).is_ok()
            }
            sent => sent.is_ok(),
        };
        if sent {
            Ok(bytes.len())
        } else {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"))
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
