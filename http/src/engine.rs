//! Where requests are worked on: threads of our own, apart from the program's.
//!
//! ```text
//!   program's runtime ── handle() ──┐            ┌── computer, one: snapshots, the index
//!                                   ├─► thread ──┼── writers, one for each body that is being written:
//!   connections of a server ────────┘  (timers,  │   compression, texts, pages
//!                                       sockets) └── search for names (rtprof-pprof-out): files
//! ```
//!
//! All but the search are named `rtprof-http`, and what they allocate beside the exports, which are not sampled at all,
//! bears the label `rtprof=http`. Writers are threads of the standard library and not of the runtime, because the runtime
//! panics where no thread can be had, and a program may abort at a panic.
//!
//! Problem: a program is profiled when all its cores are busy, and threads that give way to it do not answer in time;
//! threads that do not give way take its cores. Scheme: what answers has the program's own priority, and takes little: there
//! is one computer, one writer at a time has the turn, and writers that take more than a small share of a core give way
//! (`budget`). A writer gives its turn away for good when its client turns out to be slow: from then on the client sets the
//! pace. What takes long is reading debug information, once for each function. The search for names does it, in a thread
//! that gives way (nice 10), and an answer waits for it for a limited time (`names`). A request that waits does so without a
//! thread, and stops waiting when its client is gone.
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinError};

use crate::budget::{Account, Budget};

/// Of all threads. The kernel keeps 15 bytes.
const THREAD_NAME: &str = "rtprof-http";

/// How long the end of an engine waits for its threads: for a computation that has begun, and for writers, which notice
/// that nobody reads any more.
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
    computer: mpsc::Sender<Job>,
    turn: Arc<Semaphore>,
    budget: Arc<Budget>,
    /// Of every thread, from its start to its end.
    alive: Weak<mpsc::Sender<()>>,
    threads: Threads,
}

/// Those that may still run.
type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

type Job = Box<dyn FnOnce() + Send>;

/// A writer's turn, until it is dropped.
pub(crate) type WritePermit = OwnedSemaphorePermit;

/// The work was given up, by a panic or because the engine has ended.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl From<JoinError> for GivenUp {
    fn from(_: JoinError) -> Self {
        Self
    }
}

impl Engine {
    /// Starts its thread and the computer.
    pub(crate) fn start() -> io::Result<Self> {
        labelled(Self::start_labelled)
    }

    fn start_labelled() -> io::Result<Self> {
        let (alive, gone) = mpsc::channel();
        let alive = Arc::new(alive);
        let (end, ended) = oneshot::channel();
        let (computer, jobs) = mpsc::channel();
        let (started, starting) = mpsc::sync_channel(1);
        let threads = Threads::default();
        let (held, others) = (alive.clone(), threads.clone());
        let thread = spawn(move || {
            // Made here, because a runtime must not be dropped where the caller may be, in another one.
            let made = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
                spawn_held(&held, &others, move || compute(&jobs))?;
                Ok(runtime)
            });
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
            computer,
            turn: Arc::new(Semaphore::new(1)),
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
    /// Waits for the turn.
    pub(crate) async fn turn(&self) -> Result<WritePermit, GivenUp> {
        self.turn.clone().acquire_owned().await.map_err(|_| GivenUp)
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

    /// Has `work` done by a writer, now, to its end, and within the budget.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn writing(&self, work: impl FnOnce(Account) + Send + 'static) -> io::Result<()> {
        let budget = self.budget.clone();
        self.waiting(move || {
            let mut account = Account::open(&budget);
            account.settle();
            work(account);
        })
    }

    /// Has the current thread, a writer's, wait for `future`.
    pub(crate) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// What the current thread, a writer's, spends from now on.
    pub(crate) fn account(&self) -> Account {
        Account::open(&self.budget)
    }

    /// As [`writing`](Self::writing), for work that mostly waits: it is left out of the budget.
    pub(crate) fn waiting(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self.alive.upgrade() {
            Some(alive) => spawn_held(&alive, &self.threads, work),
            None => Err(io::Error::other("the server has ended")),
        }
    }

    /// Has `work` done by the computer, after all that was asked of it before. What has not begun when the caller gives
    /// up is not done.
    pub(crate) async fn computing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, GivenUp> {
        let (done, waiting) = oneshot::channel();
        let budget = self.budget.clone();
        let job: Job = Box::new(move || {
            if !done.is_closed() {
                let _account = Account::open(&budget);
                // Fails if nobody waits any more.
                let _ = done.send(work());
            }
        });
        self.computer.send(job).map_err(|_| GivenUp)?;
        waiting.await.map_err(|_| GivenUp)
    }
}

/// The computer's thread, until there is no link to it.
fn compute(jobs: &mpsc::Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        // A panic was printed, and its caller finds that it got no answer. The next ones get theirs.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
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
