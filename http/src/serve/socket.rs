//! The socket of a connection, which notices clients that stall and clients that are gone.

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use mio::net::TcpStream;
use socket2::SockRef;
use tokio::time::{Instant, Sleep, sleep};

use crate::body::STALL;
use crate::serve::reactor::{Reactor, Registered, Wanted};

/// Size of the kernel's send buffer. The kernel reports room again only when a third of the buffer is free. Its default
/// of megabytes would make a slow client seem to take nothing for minutes.
const SEND_BUFFER: usize = 256 << 10;
/// The most bytes of one read: requests are short.
const READ: usize = 8 << 10;

/// A socket whose writes fail when the client takes nothing for too long; hyper would wait without limit.
pub(crate) struct Socket {
    stream: Arc<Registered<TcpStream>>,
    /// When the current write has waited too long.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

/// A watch on whether the client has closed the connection, for the task that uses the socket.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Registered<TcpStream>>);

impl Watch {
    /// Returns when the client has closed, or has ended its side of the connection.
    pub(crate) async fn closed(&self) {
        poll_fn(|context| self.0.poll_end(context)).await;
    }
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, reactor: &Reactor) -> io::Result<Self> {
        // Answers are written whole, and waiting for more would only delay them. A failure is ignored: the socket still
        // works.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        let stream = Arc::new(reactor.register(stream)?);
        Ok(Self { stream, deadline: Box::pin(sleep(STALL)), is_waiting: false })
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(self.stream.clone())
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.socket()?.local_addr()
    }

    /// Tries to write until it is done or the socket is full.
    fn poll_writing<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match self.stream.poll(Wanted::Write, context, write) {
            Poll::Ready(written) => {
                self.is_waiting = false;
                Poll::Ready(written)
            }
            Poll::Pending => self.poll_stalled(context),
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

impl Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ];
        let room = buffer.remaining().min(READ);
        let read = |mut stream: &TcpStream| stream.read(&mut bytes[..room]);
        let count = ready!(self.stream.poll(Wanted::Read, context, read))?;
        buffer.put_slice(&bytes[..count]);
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |mut stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |mut stream| stream.write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is buffered here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.socket().and_then(|socket| socket.shutdown(std::net::Shutdown::Write)))
    }
}
