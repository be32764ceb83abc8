//! Where requests are worked on: threads of our own, apart from the program's.
//!
//! ```text
//!   program's runtime ── handle() ──┐            ┌── blocking threads, started as needed, gone after 5 s:
//!                                   ├─► thread ──┤     snapshots, symbols, compression
//!   connections of a server ────────┘  (timers,  └── one of them at a time computes (`turn`)
//!                                       sockets)
//! ```
//!
//! All of them are named `rtprof-http`, give way to the program's threads (nice 10), and what they allocate beside
//! the exports, which are not sampled at all, bears the label `rtprof=http`.
//!
//! A computation has the turn, so that requests that come together take one core and not all, and not several times
//! the memory of debug information. It gives the turn away while its client is slow.
//!
//! Locks: `Turn`, of one engine, taken only by its blocking threads. A forked child makes itself an engine.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rtprof_profiler::fork_safe::PerProcess;
use rtprof_profiler::{goroutine, labels, sampling};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Of all threads. The kernel keeps 15 bytes.
pub(crate) const THREAD_NAME: &str = "rtprof-http";

/// How long a blocking thread waits for more work.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long the end of an engine waits for its blocking threads, which notice that nobody reads any more.
const GRACE: Duration = Duration::from_secs(5);
/// More than any configuration's captures need: each holds one blocking thread, and waits without one.
const MAX_BLOCKING: usize = 64;

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
    turn: Arc<Turn>,
}

/// Whose turn it is to compute.
#[derive(Default)]
pub(crate) struct Turn(Mutex<()>);

impl Turn {
    pub(crate) fn take(&self) -> MutexGuard<'_, ()> {
        // It guards no data that a panic could leave half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work was given up, by a panic or because the engine has ended.
#[derive(Debug)]
pub(crate) struct GivenUp;

impl From<tokio::task::JoinError> for GivenUp {
    fn from(_: tokio::task::JoinError) -> Self {
        Self
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
            .max_blocking_threads(MAX_BLOCKING)
            .thread_keep_alive(KEEP_ALIVE)
            .thread_name(THREAD_NAME)
            .build()?;
        let link = Link { runtime: runtime.handle().clone(), turn: Arc::default() };
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            marked(|| {
                // Told, or dropped with the engine.
                let _ = runtime.block_on(ended);
                runtime.shutdown_timeout(GRACE);
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
    pub(crate) fn turn(&self) -> Arc<Turn> {
        self.turn.clone()
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
        struct GivesUp(tokio::task::AbortHandle);
        impl Drop for GivesUp {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let running = self.runtime.spawn(future);
        let _gives_up = GivesUp(running.abort_handle());
        Ok(running.await?)
    }

    /// Has `work` done by a blocking thread, without the turn. Once begun, it is done to its end.
    pub(crate) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn_blocking(|| marked(work))
    }

    /// The same, in its turn.
    pub(crate) fn computing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let turn = self.turn();
        self.blocking(move || {
            let _turn = turn.take();
            work()
        })
    }
}

/// Runs `work` as one of ours: under our name and label, giving way to the program.
fn marked<T>(work: impl FnOnce() -> T) -> T {
    thread_local! {
        static KNOWN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if !KNOWN.replace(true) {
        give_way();
    }
    let _goroutine = goroutine::register(Some(THREAD_NAME), None);
    labelled(work)
}

/// Runs `work` under our label, so that a user can tell what it allocates from his own.
pub(crate) fn labelled<T>(work: impl FnOnce() -> T) -> T {
    let label = {
        let _untracked = sampling::untracked();
        labels::labels(&[("rtprof", "http")])
    };
    labels::do_with(label, work)
}

/// Less of a core for this thread where the program wants it. Never undone: the thread is ours.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        /// A tenth of what an ordinary thread gets, when both want it.
        const NICE: i32 = 10;
        // Where even that is forbidden the thread works on as it is.
        let _ = rustix::process::nice(NICE);
    }
}
