//! Threads whose stacks begin with as few frames as possible: the C library's start, one function, and the given
//! closure. std's threads have some ten frames already, more than the smaller of the depths that are measured.

use std::ffi::c_void;
use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};

type Order = Box<dyn FnOnce() + Send>;

/// A thread that lives as long as the process.
pub(crate) struct Bare {
    orders: Sender<Order>,
    done: Receiver<()>,
}

struct Ends {
    orders: Receiver<Order>,
    done: Sender<()>,
}

impl Bare {
    pub(crate) fn start() -> Self {
        let (orders, to_do) = channel();
        let (is_done, done) = channel();
        let ends = Box::into_raw(Box::new(Ends { orders: to_do, done: is_done }));
        let mut thread: libc::pthread_t = 0;
        // SAFETY: `entry` takes ownership of `ends`, which this function has given up with `Box::into_raw`.
        let error =
            unsafe { libc::pthread_create(&raw mut thread, ptr::null(), entry, ends.cast::<c_void>()) };
        assert_eq!(error, 0, "the system gives no thread");
        // SAFETY: the thread exists, and is never joined.
        unsafe { libc::pthread_detach(thread) };
        Self { orders, done }
    }

    /// Lets the thread run `order`.
    pub(crate) fn begin(&self, order: impl FnOnce() + Send + 'static) {
        self.orders.send(Box::new(order)).expect("the thread lives as long as the process");
    }

    /// Waits until the thread has run its order.
    pub(crate) fn wait(&self) {
        self.done.recv().expect("the order panicked");
    }
}

extern "C" fn entry(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `start` made the pointer from a box, and passed it to this thread only.
    let ends = unsafe { Box::from_raw(argument.cast::<Ends>()) };
    for order in &ends.orders {
        order();
        if ends.done.send(()).is_err() {
            break;
        }
    }
    ptr::null_mut()
}
