//! The socket of a connection, which notices clients that stall and clients that are gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::worker::STALL;

/// Size of the kernel's send buffer. The kernel reports room again only when a third of the buffer is free. Its default
/// of megabytes would make a slow client seem to take nothing for minutes.
const SEND_BUFFER: usize = 256 << 10;
/// How often a client that has sent more than was read is checked for having closed.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// A socket whose writes fail when the client takes nothing for too long; hyper would wait without limit.
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    /// When the current write has waited too long.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

/// A watch on whether the client has closed the connection.
#[derive(Clone)]
pub(crate) struct Watch(Arc<TcpStream>);

impl Watch {
    /// Returns when the client has closed, or has ended its side of the connection.
    pub(crate) async fn closed(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => sleep(LOOK).await,
                _ => return,
            }
        }
    }
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Answers are written whole, and waiting for more would only delay them. A failure is ignored: the socket still
        // works.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        Self { stream: Arc::new(stream), deadline: Box::pin(sleep(STALL)), is_waiting: false }
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(self.stream.clone())
    }

    /// Tries to write until it is done or the socket is full.
    fn poll_writing<T>(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match self.stream.poll_write_ready(context) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return self.poll_stalled(context),
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.is_waiting = false;
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// Fails when the write has waited for too long.
    fn poll_stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + STALL);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is buffered here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write))
    }
}
