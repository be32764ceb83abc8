//! Tasks that are polled by hand, with an executor and a leaf that expose the wakers that they receive.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use rtprof::task::Instrumented;

/// An executor's waker that counts wakes.
#[derive(Default)]
pub(crate) struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A leaf that keeps the wakers that it was polled with, except those equal to the last one.
#[derive(Clone, Default)]
pub(crate) struct Leaf(pub(crate) Arc<Mutex<Vec<Waker>>>);

impl Future for Leaf {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut wakers = self.0.lock().expect("nobody panics");
        if !wakers.last().is_some_and(|last| last.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Leaf {
    pub(crate) fn take(&self) -> Vec<Waker> {
        std::mem::take(&mut self.0.lock().expect("nobody panics"))
    }
}

pub(crate) fn poll<F: Future>(future: Pin<&mut Instrumented<F>>, executor: &Arc<Woken>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&executor.clone().into()))
}
