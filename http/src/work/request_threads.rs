//! The request threads of a handler: runs jobs on the threads of an engine, each with a permit.

use std::future::Future;
use std::io;

use http::Response;
use rtprof_runtime::lock::fork_safe::PerProcess;

use crate::answer::Refusal;
use crate::body::Body;
use crate::work::engine::{self, GivenUp, Link};
use crate::work::permits::{Permits, Purpose};
use crate::work::response_writer::{self, Failure, ResponseWriter};

/// Runs the jobs of a handler.
pub(crate) struct RequestThreads {
    permits: Permits,
    max_captures: usize,
    /// The process that the permits belong to: in a forked child the permits held by its parent may never be returned.
    process: u32,
    /// The engine of a [`Server`](crate::Server). All other handlers share one engine, made for their first request.
    link: Option<Link>,
}

impl RequestThreads {
    /// Makes the request threads of a handler; `link` is the engine of its server.
    pub(crate) fn new(max_captures: usize, link: Option<Link>) -> Self {
        Self { permits: Permits::new(max_captures), max_captures, process: std::process::id(), link }
    }

    /// Runs `job` on a request thread as soon as a permit is free, and returns the answer that it begins.
    pub(crate) async fn run(
        &self,
        purpose: Purpose,
        job: impl FnOnce(&mut ResponseWriter) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Response<Body>, Refusal> {
        let (permits, link) = (self.permits(), self.engine()?);
        self.on_engine(async move {
            let permit = permits.acquire(purpose).await?;
            response_writer::answer(&link, permit, job).await
        })
        .await
    }

    /// Runs `work` on the engine's thread, which has a timer, and from which request threads are started: the program's threads
    /// start none.
    pub(crate) async fn on_engine<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.engine()?.run(work).await.map_err(|GivenUp| response_writer::not_collected())?
    }

    fn engine(&self) -> Result<Link, Refusal> {
        let link: io::Result<Link> = self.link.clone().map_or_else(engine::shared, Ok);
        link.map_err(|error| Refusal::busy(format!("no thread for the capture: {error}")))
    }

    fn permits(&self) -> Permits {
        /// Shared by all handlers that a forked child has from its parent.
        static INHERITED: PerProcess<Permits> = PerProcess::new();
        match self.process == std::process::id() {
            true => self.permits.clone(),
            false => INHERITED.get(|| Permits::new(self.max_captures)).clone(),
        }
    }
}
