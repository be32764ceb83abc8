//! Where requests are worked on: threads of our own, apart from the program's.
//!
//! ```text
//!   program's runtime ── handle() ──┐            ┌── computer, one: snapshots, names, pages
//!                                   ├─► thread ──┤
//!   connections of a server ────────┘  (timers,  └── writers, one for each body that is being written:
//!                                       sockets)     compression, text
//! ```
//!
//! Computer and writers are started as needed and gone after five seconds without work. All are named `rtprof-http`,
//! give way to the program's threads (nice 10), and what they allocate beside the exports, which are not sampled at
//! all, bears the label `rtprof=http`.
//!
//! There is one computer, because names are found in debug information, tens of megabytes of which are open meanwhile:
//! several threads would have it several times, and an allocator that keeps what each thread once had (glibc's does)
//! would keep it for good. Of the writers one at a time has the turn, so that requests that come together take one
//! core and not all. It gives the turn away for good when its client turns out to be slow: from then on that one sets
//! the pace. Whoever waits does so without a thread, and stops waiting when its client is gone.
//!
//! Locks: none that outlives a call. A forked child makes itself an engine.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rtprof_profiler::fork_safe::PerProcess;
use rtprof_profiler::{goroutine, labels, sampling};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinError};

/// Of all threads. The kernel keeps 15 bytes.
pub(crate) const THREAD_NAME: &str = "rtprof-http";

/// How long a computer or writer waits for more work.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long the end of an engine waits for its writers, which notice that nobody reads any more, and as long again for
/// the computer.
const GRACE: Duration = Duration::from_secs(5);
/// More writers than any sensible number of captures needs; further bodies wait.
const MAX_WRITERS: usize = 64;

/// A runtime on a thread of its own. Ends when dropped; what it was doing is given up.
pub(crate) struct Engine {
    link: Link,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A way to have work done by an engine.
#[derive(Clone)]
pub(crate) struct Link {
    runtime: Handle,
    /// Only its blocking thread is used.
    computer: Handle,
    turn: Arc<Semaphore>,
}

/// A writer's turn, until it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

/// The work was given up, by a panic or because the engine has ended.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl From<JoinError> for GivenUp {
    fn from(_: JoinError) -> Self {
        Self
    }
}

/// Gives work up when nobody waits for it any more.
struct GivesUp(AbortHandle);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Starts a thread.
    pub(crate) fn start() -> io::Result<Self> {
        labelled(Self::start_labelled)
    }

    fn start_labelled() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_WRITERS)
            .thread_keep_alive(KEEP_ALIVE)
            .thread_name(THREAD_NAME)
            .build()?;
        let computer = Builder::new_current_thread()
            .max_blocking_threads(1)
            .thread_keep_alive(KEEP_ALIVE)
            .thread_name(THREAD_NAME)
            .build()?;
        let link = Link {
            runtime: runtime.handle().clone(),
            computer: computer.handle().clone(),
            turn: Arc::new(Semaphore::new(1)),
        };
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            // Before any other: threads inherit it from the one that starts them, and all others are started here.
            give_way();
            marked(|| {
                // Told, or dropped with the engine.
                let _ = runtime.block_on(ended);
                runtime.shutdown_timeout(GRACE);
                computer.shutdown_timeout(GRACE);
            });
        })?;
        Ok(Self { link, end: Some(end), thread: Some(thread) })
    }

    pub(crate) fn link(&self) -> Link {
        self.link.clone()
    }

    /// Ends the engine and waits until its thread is gone.
    pub(crate) fn shut_down(mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            // A panic was printed; there is nothing to add to it.
            let _ = thread.join();
        }
    }

    /// Lets it run for as long as the process does.
    pub(crate) fn detach(mut self) {
        std::mem::forget(self.end.take());
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
    pub(crate) async fn turn(&self) -> Result<Turn, GivenUp> {
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
        let running = self.runtime.spawn(future);
        let _gives_up = GivesUp(running.abort_handle());
        Ok(running.await?)
    }

    /// Has `work` done by a writer, now. Once begun, it is done to its end.
    pub(crate) fn writing(&self, work: impl FnOnce() + Send + 'static) {
        // Not waited for: its body tells what becomes of it.
        drop(self.runtime.spawn_blocking(|| marked(work)));
    }

    /// Has `work` done by the computer, after all that was asked of it before. Once begun, it is done to its end.
    pub(crate) async fn computing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, GivenUp> {
        let running = self.computer.spawn_blocking(|| marked(work));
        // What has not begun when the client goes is not done.
        let _gives_up = GivesUp(running.abort_handle());
        Ok(running.await?)
    }
}

/// Runs `work` as one of ours: under our name and label.
fn marked<T>(work: impl FnOnce() -> T) -> T {
    let _goroutine = goroutine::register(Some(THREAD_NAME), None);
    labelled(work)
}

/// Runs `work` under our label, so that a user can tell what it allocates from his own.
pub(crate) fn labelled<T>(work: impl FnOnce() -> T) -> T {
    let _labels = {
        let _untracked = sampling::untracked();
        labels::set_labels(labels::labels(&[("rtprof", "http")]))
    };
    work()
}

/// Less of a core for this thread, and those that it starts, where the program wants it. Never undone: they are ours.
/// Once for all of them: it adds to what a thread inherits.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        /// A tenth of what an ordinary thread gets, when both want it.
        const NICE: i32 = 10;
        // Where even that is forbidden the thread works on as it is.
        let _ = rustix::process::nice(NICE);
    }
}
