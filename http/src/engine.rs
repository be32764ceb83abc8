//! Where requests are worked on: threads of our own, apart from the program's.
//!
//! ```text
//!   program's runtime ── handle() ──┐     ┌── workers, one for each answer: snapshots, names,
//!                                   ├─────┤   compression, texts, pages (`worker`)
//!   connections of a server ────────┘     └── search for names (rtprof-symbols): files
//!     (the engine's thread: timers, sockets)
//! ```
//!
//! All but the search are named `rtprof-http`, and what they allocate beside the exports, which are not sampled at all,
//! bears the label `rtprof=http`. Workers are threads of the standard library and not of the runtime, because the runtime
//! panics when the system refuses a thread, and a program may abort at a panic.
//!
//! Problem: a program is profiled when all its cores are busy, and threads that give way to it do not answer in time;
//! threads that do not give way take its cores. Scheme: what answers has the program's own priority, and takes little: one
//! worker at a time has the turn, and workers that take more than a small share of a core give way (`budget`). What takes
//! long is reading debug information, once for each function. The search for names does it, in a thread that gives way
//! (nice 10), and an answer waits for it for a limited time (`names`).
//!
//! Locks: `Threads`, which protects a list of threads; taken where one is started. A forked child has nothing of
//! this: it makes itself an engine.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::labels;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinError};

use crate::budget::Budget;

/// Of all threads. The kernel keeps 15 bytes.
const THREAD_NAME: &str = "rtprof-http";

/// How long the end of an engine waits for its threads: workers that compute, or notice that their client is gone.
const GRACE: Duration = Duration::from_secs(5);

/// A runtime on a thread of its own. Ends when dropped; what it was doing is given up.
pub(crate) struct Engine {
    link: Link,
    end: oneshot::Sender<()>,
    /// Nothing is ever sent: it is closed when the last thread has done its work.
    gone: mpsc::Receiver<()>,
    threads: Threads,
    /// Where its threads are.
    process: u32,
}

/// A way to have work done by an engine.
#[derive(Clone)]
pub(crate) struct Link {
    runtime: Handle,
    turns: Arc<Semaphore>,
    budget: Arc<Budget>,
    /// Of every thread, from its start to its end.
    alive: Weak<mpsc::Sender<()>>,
    threads: Threads,
}

/// Those that may still run.
type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// The work was given up, by a panic or because the engine has ended.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl From<JoinError> for GivenUp {
    fn from(_: JoinError) -> Self {
        Self
    }
}

impl Engine {
    /// Starts its thread.
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
            // Made here, because a runtime must not be dropped where the caller may be, in another one.
            let made = Builder::new_current_thread().enable_all().build();
            let runtime = match made {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            let handle = runtime.handle().clone();
            if started.send(Ok((handle, Arc::downgrade(&held)))).is_ok() {
                // Told, or dropped with the engine.
                let _ = runtime.block_on(ended);
            }
        })?;
        // Without an answer the thread has panicked.
        let (runtime, alive) = starting.recv().map_err(io::Error::other)??;
        keep(&threads, thread);
        let link = Link {
            runtime,
            turns: Arc::new(Semaphore::new(1)),
            budget: Arc::new(Budget::new()),
            alive,
            threads: threads.clone(),
        };
        Ok(Self { link, end, gone, threads, process: std::process::id() })
    }

    pub(crate) fn link(&self) -> Link {
        self.link.clone()
    }

    /// Ends the engine and waits until its threads are gone, for five seconds at most. In a forked child, which has no
    /// part in it, nothing happens.
    pub(crate) fn shut_down(self) {
        if self.process != std::process::id() {
            return std::mem::forget(self);
        }
        let Self { link, end, gone, threads, .. } = self;
        drop((link, end));
        if gone.recv_timeout(GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        // They have nothing more to do but to end.
        for thread in threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A panic was printed; there is nothing to add to it.
            let _ = thread.join();
        }
    }

    /// Lets it run for as long as the process does.
    pub(crate) fn detach(self) {
        std::mem::forget(self);
    }
}

/// The engine of requests that come from the program's own server: one a process, from the first of them on.
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
    /// A permit of these is the turn of a worker.
    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        self.turns.clone()
    }

    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.budget.clone()
    }

    /// Runs `work` where sockets can be registered with the engine.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
    }

    /// Starts `future` on the engine's thread; nobody waits for it.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Has `future` run on the engine's thread. It is given up when the caller gives up waiting.
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

    /// Starts a thread for `work`. The engine's end waits for it.
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

/// Keeps a thread until its end is seen.
fn keep(threads: &Threads, thread: JoinHandle<()>) {
    let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
    threads.retain(|thread| !thread.is_finished());
    threads.push(thread);
}

/// Starts a thread of ours: under our name and label.
fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
    hidden::hiding(Calls::THREADS, || thread.spawn(|| labelled(work)))
}

/// Runs `work` under our label, so that a user can tell what it allocates from his own.
pub(crate) fn labelled<T>(work: impl FnOnce() -> T) -> T {
    let _labels = labels::set_own("http");
    work()
}
