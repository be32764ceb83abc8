//! The engine: rtprof's own threads, which do the work of requests apart from the program's threads.
//!
//! ```text
//!   program's runtime ── handle() ──┐     ┌── request threads, one for each answer: snapshots, names,
//!                                   ├─────┤   compression, texts, pages (`request_threads`)
//!   connections of a server ────────┘     └── search for names (rtprof-symbols): files
//!     (the engine's thread: timers; `reactor`: sockets)
//! ```
//!
//! All threads but the search are named `rtprof-http`. Their allocations bear the label `rtprof=http`, except those of
//! exports, which are not sampled at all. Request threads are threads of the standard library and not of the runtime, because
//! the runtime panics when the system refuses a thread, and a program may abort at a panic.
//!
//! Problem: a program is profiled when all its cores are busy. Threads that give way to the program then do not answer
//! in time; threads that do not give way take its cores. Scheme: the answering threads have the program's own priority,
//! and give way when answers have taken more than a small share of a core (`budget`). The long part of the work is reading debug information, once for each function. The search for names
//! does this in a thread that gives way (nice 10), and an answer waits for the search for a limited time (`names`).
//!
//! Locks: `Threads`, which protects a list of threads; taken when a thread is started. A forked child does not have
//! these threads: it makes its own engine.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::room;
use rtprof_runtime::labels;
use rtprof_runtime::lock::fork_safe::PerProcess;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError};

use crate::work::budget::Budget;

/// The name of all threads; the kernel keeps 15 bytes of a name.
const THREAD_NAME: &str = "rtprof-http";

/// How long the shutdown of an engine waits for its threads, which compute or have yet to notice that their client is
/// gone.
const GRACE: Duration = Duration::from_secs(5);

/// A runtime on its own thread. Dropping it ends the runtime and abandons its work.
pub(crate) struct Engine {
    link: Link,
    end: oneshot::Sender<()>,
    /// Receives no message; the channel closes when the last thread has done its work.
    gone: mpsc::Receiver<()>,
    threads: Threads,
    /// The process that the threads belong to.
    process: u32,
}

/// A handle for giving work to an engine.
#[derive(Clone)]
pub(crate) struct Link {
    runtime: Handle,
    budget: Arc<Budget>,
    /// Every thread holds a strong reference from its start to its end.
    alive: Weak<mpsc::Sender<()>>,
    threads: Threads,
}

/// The threads that may still run.
type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Error of work that was abandoned, by a panic or because the engine has ended.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl From<JoinError> for GivenUp {
    fn from(_: JoinError) -> Self {
        Self
    }
}

impl Engine {
    /// Starts the engine's thread.
    pub(crate) fn start() -> io::Result<Self> {
        labelled(Self::start_labelled)
    }

    fn start_labelled() -> io::Result<Self> {
        let (alive, gone) = mpsc::channel();
        let alive = Arc::new(alive);
        let (end, ended) = oneshot::channel();
        let (started, starting) = mpsc::sync_channel(1);
        let threads = Threads::default();
        let held = alive.clone();
        let thread = spawn(move || {
            // The runtime is made on this thread, because it must not be dropped within another runtime, where the
            // caller may be.
            let made = Builder::new_current_thread().enable_time().build();
            let runtime = match made {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            let handle = runtime.handle().clone();
            if started.send(Ok((handle, Arc::downgrade(&held)))).is_ok() {
                // Returns when the engine is shut down or dropped.
                let _ = runtime.block_on(ended);
            }
        })?;
        // If the channel closes without a message, the thread has panicked.
        let (runtime, alive) = starting.recv().map_err(io::Error::other)??;
        keep(&threads, thread);
        let link = Link { runtime, budget: Arc::new(Budget::new()), alive, threads: threads.clone() };
        Ok(Self { link, end, gone, threads, process: std::process::id() })
    }

    pub(crate) fn link(&self) -> Link {
        self.link.clone()
    }

    /// Whether this process has the engine's threads: a forked child does not.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Ends the engine, which is here, and waits until its threads have ended, for five seconds at most.
    pub(crate) fn shut_down(self) {
        let Self { link, end, gone, threads, .. } = self;
        drop((link, end));
        if gone.recv_timeout(GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        // The threads have no work left, so that the joins are short.
        let threads = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The panic message was printed already.
            let _ = thread.join();
        }
    }

    /// Lets the engine run for as long as the process does.
    pub(crate) fn detach(self) {
        std::mem::forget(self);
    }
}

/// Returns the engine for requests that arrive at the program's own server: one for each process, started by the first
/// request.
pub(crate) fn shared() -> io::Result<Link> {
    static SHARED: PerProcess<Mutex<Option<Link>>> = PerProcess::new();
    let mut shared = SHARED.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(link) = &*shared {
        return Ok(link.clone());
    }
    let engine = Engine::start()?;
    let link = engine.link();
    engine.detach();
    *shared = Some(link.clone());
    Ok(link)
}

impl Link {
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.budget.clone()
    }

    /// Starts `future` on the engine's thread, detached.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Runs `future` on the engine's thread. The future is aborted when the caller stops waiting.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, GivenUp> {
        struct GivesUp(AbortHandle);
        impl Drop for GivesUp {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let running = self.runtime.spawn(future);
        let _gives_up = GivesUp(running.abort_handle());
        Ok(running.await?)
    }

    /// Starts a thread for `work`. The shutdown of the engine waits for the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn spawn_thread(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self.alive.upgrade() {
            Some(alive) => spawn_held(&alive, &self.threads, work),
            None => Err(io::Error::other("the server has ended")),
        }
    }
}

fn spawn_held(
    alive: &Arc<mpsc::Sender<()>>,
    threads: &Threads,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let alive = mpsc::Sender::clone(alive);
    let thread = spawn(move || {
        work();
        drop(alive);
    })?;
    keep(threads, thread);
    Ok(())
}

/// Adds a thread to the list, and removes those that have ended.
fn keep(threads: &Threads, thread: JoinHandle<()>) {
    let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
    threads.retain(|thread| !thread.is_finished());
    threads.push(thread);
}

/// The stack of std's threads and its neighbours, and the signal stack, without which the thread would end the process.
const OF_A_THREAD: usize = 3 << 20;

/// Starts a thread with the engine's name and label.
fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    room::check_for_mapping(OF_A_THREAD)?;
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
    hidden::hiding(Calls::THREADS, || thread.spawn(|| labelled(work)))
}

/// Runs `work` under our own label, so that a user can tell its allocations from those of the program.
pub(crate) fn labelled<T>(work: impl FnOnce() -> T) -> T {
    let _labels = labels::set_own("http");
    work()
}
