//! Readiness of a server's sockets: a thread that waits until they can be read or written.
//!
//! Problem: a runtime's own driver panics when the program has closed its descriptors, on whichever thread wakes it:
//! `Server::shutdown` would panic in its caller, and a program that aborts at a panic would end. Scheme: the engine's runtime
//! has no driver. This thread polls, and ends with one message when it cannot: then connections end, the server accepts no
//! more, and `shutdown` returns.
//!
//! ```text
//!   engine's thread    ready? ─► read, write, accept ──► would block: wait for the next event
//!                        ▲
//!   this thread          └── wake ◄── event, kept until it is used ◄── epoll, edge-triggered
//! ```
//!
//! The descriptor of epoll has no cookie (see `descriptor`), and to wait at an epoll of the program would take its events. It
//! is ours if the bell is registered with it (see `bell`).
//!
//! Locks: those of the map of sources, and one for the readiness of each source; held for some instructions, by the two
//! threads only.

use std::io;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use dashmap::DashMap;
use mio::event::{Event, Source};
use mio::{Events, Interest, Registry, Token};

use crate::serve::bell::Bell;
use crate::serve::descriptor::{Owned, Socket};

/// The longest time until the thread notices that its descriptor is gone.
const LOOK: Duration = Duration::from_secs(2);
const BELL: Token = Token(0);
/// The parts of the map of sources, each with a lock: two threads use it. Not dashmap's default, for which std reads files.
const SHARDS: usize = 2;

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Something to read, or a connection to accept.
    Read,
    /// Room to write.
    Write,
    /// The client's end of the connection.
    End,
}

/// A handle of the thread, for registering sockets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reactor(Arc<Shared>);

struct Shared {
    /// `None` only while this is dropped.
    registry: Option<Registry>,
    bell: Bell,
    sources: DashMap<Token, Arc<Readiness>>,
    next: AtomicUsize,
    has_ended: AtomicBool,
}

/// Whether a socket is ready.
#[derive(Default)]
struct Readiness(Mutex<State>);

#[derive(Default)]
struct State {
    /// For each [`Wanted`], whether there was an event that no attempt has used up.
    is_ready: [bool; 3],
    /// For each [`Wanted`], the task that waits for it: one task uses a socket.
    waiting: [Option<Waker>; 3],
    has_ended: bool,
}

impl Reactor {
    /// Makes a reactor, and returns what its thread is to run.
    pub(crate) fn new() -> io::Result<(Self, impl FnOnce() + Send + 'static)> {
        let poll = mio::Poll::new()?;
        let shared = Arc::new(Shared {
            registry: Some(poll.registry().try_clone()?),
            bell: Bell::new(poll.registry(), BELL)?,
            sources: DashMap::with_shard_amount(SHARDS),
            next: AtomicUsize::new(BELL.0 + 1),
            has_ended: AtomicBool::new(false),
        });
        let reactor = Self(shared.clone());
        Ok((reactor, move || shared.run(poll)))
    }

    /// Registers a socket, which does not block.
    pub(crate) fn register<S: Source + Socket>(&self, mut socket: S) -> io::Result<Registered<S>> {
        let token = Token(self.0.next.fetch_add(1, Ordering::Relaxed));
        let readiness = Arc::new(Readiness::default());
        // Before the registration, whose first event may come at once.
        self.0.sources.insert(token, readiness.clone());
        let registered = self.0.registry().and_then(|registry| {
            registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)
        });
        if let Err(error) = registered {
            self.0.sources.remove(&token);
            return Err(error);
        }
        if self.has_ended() {
            readiness.end();
        }
        Ok(Registered { socket: Owned::new(socket), readiness, token, reactor: self.clone() })
    }

    /// Whether the thread has ended, or is about to.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.0.has_ended.store(true, Ordering::Release);
        // Without it the thread looks too, if later.
        self.0.bell.ring();
    }

    /// Ends the thread because the program has closed a descriptor.
    pub(crate) fn give_up(&self, error: &io::Error) {
        self.0.give_up(error);
    }
}

impl Shared {
    fn run(&self, mut poll: mio::Poll) {
        let mut events = Events::with_capacity(64);
        while !self.has_ended.load(Ordering::Acquire) {
            let polled = self.bell.check(poll.registry()).and_then(|()| poll.poll(&mut events, Some(LOOK)));
            match polled {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.give_up(&error);
                    break;
                }
                Ok(()) => {}
            }
            for event in &events {
                let source = self.sources.get(&event.token()).map(|source| source.clone());
                if let Some(source) = source {
                    source.note(event);
                }
            }
        }
        let sources: Vec<_> = self.sources.iter().map(|source| source.clone()).collect();
        sources.iter().for_each(|source| source.end());
        if self.bell.check(poll.registry()).is_err() {
            std::mem::forget(poll);
        }
    }

    fn registry(&self) -> io::Result<&Registry> {
        let registry = self.registry.as_ref().expect("it is there until it is dropped");
        self.bell.check(registry)?;
        Ok(registry)
    }

    fn give_up(&self, error: &io::Error) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let message = format!(
            "rtprof: the server of profiles has ended, because the program closed its descriptors: {error}\n"
        );
        // Not by `eprintln`, which panics if it cannot.
        let _ = io::stderr().write_all(message.as_bytes());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.registry().is_err() {
            std::mem::forget(self.registry.take());
        }
    }
}

impl Readiness {
    fn note(&self, event: &Event) {
        let has_failed = event.is_error();
        let has_end = has_failed || event.is_read_closed();
        let is_ready = [
            has_end || event.is_readable(),
            has_failed || event.is_writable() || event.is_write_closed(),
            has_end,
        ];
        let mut state = locked(&self.0);
        for (known, is_ready) in state.is_ready.iter_mut().zip(is_ready) {
            *known |= is_ready;
        }
        let waiting = is_ready.iter().zip(&mut state.waiting).filter(|(is_ready, _)| **is_ready);
        let woken: Vec<Waker> = waiting.filter_map(|(_, waiting)| waiting.take()).collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends all waits, now and later.
    fn end(&self) {
        let mut state = locked(&self.0);
        state.has_ended = true;
        let woken = std::mem::take(&mut state.waiting);
        drop(state);
        woken.into_iter().flatten().for_each(Waker::wake);
    }

    /// Waits for an event. Fails if the thread has ended.
    fn poll(&self, wanted: Wanted, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = locked(&self.0);
        if state.has_ended {
            return Poll::Ready(Err(io::Error::other("the server has ended")));
        }
        if state.is_ready[wanted as usize] {
            return Poll::Ready(Ok(()));
        }
        state.waiting[wanted as usize] = Some(context.waker().clone());
        Poll::Pending
    }

    fn set(&self, wanted: Wanted, is_ready: bool) {
        locked(&self.0).is_ready[wanted as usize] = is_ready;
    }
}

/// A socket, for as long as it is registered.
pub(crate) struct Registered<S: Source + Socket> {
    socket: Owned<S>,
    readiness: Arc<Readiness>,
    token: Token,
    reactor: Reactor,
}

impl<S: Source + Socket> Registered<S> {
    /// Returns the socket.
    ///
    /// # Errors
    /// The program has closed it.
    pub(crate) fn socket(&self) -> io::Result<&S> {
        self.socket.get()
    }

    /// Attempts `attempt` until it does not block. Fails if it fails, if the program has closed the socket, or if the server
    /// has ended.
    pub(crate) fn poll<T>(
        &self,
        wanted: Wanted,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(self.readiness.poll(wanted, context))?;
            // Before the attempt: an event during it is kept.
            self.readiness.set(wanted, false);
            match self.socket().and_then(&mut attempt) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.readiness.set(wanted, true),
                done => {
                    // There may be more: the next event is for what comes after that.
                    self.readiness.set(wanted, true);
                    return Poll::Ready(done);
                }
            }
        }
    }

    /// Waits until the client has ended its side of the connection, or the server has ended.
    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<()> {
        self.readiness.poll(Wanted::End, context).map(drop)
    }
}

impl<S: Source + Socket> Drop for Registered<S> {
    fn drop(&mut self) {
        self.reactor.0.sources.remove(&self.token);
        // The kernel ends the registration with the last descriptor of the socket, which a forked child may have.
        if let (Ok(socket), Ok(registry)) = (self.socket.get_mut(), self.reactor.0.registry()) {
            let _ = registry.deregister(socket);
        }
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
