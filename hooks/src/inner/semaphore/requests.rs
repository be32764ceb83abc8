//! The requests of the threads in a semaphore's queue.

use std::cell::Cell;
use std::ptr;

/// The requests, in the order of the queue, which itself stores only three bits for each thread. Protected by the
/// queue's lock, and changed whenever the queue is.
pub(super) struct Requests {
    first: *const Request,
    last: *const Request,
}

/// The request of one thread, on its stack.
pub(super) struct Request {
    permits: usize,
    next: Cell<*const Request>,
}

impl Request {
    pub(super) fn new(permits: usize) -> Self {
        Self { permits, next: Cell::new(ptr::null()) }
    }
}

impl Requests {
    pub(super) const EMPTY: Self = Self { first: ptr::null(), last: ptr::null() };

    /// Appends a request.
    ///
    /// # Safety
    /// The request is in no list, and is not moved until [`pop`](Requests::pop) or [`remove`](Requests::remove) takes
    /// it out.
    pub(super) unsafe fn push(&mut self, request: &Request) {
        request.next.set(ptr::null());
        if self.first.is_null() {
            self.first = request;
        } else {
            // SAFETY: requests in the list are not moved.
            unsafe { (*self.last).next.set(request) };
        }
        self.last = request;
    }

    /// Takes out the first request if it is for no more than `permits`, and returns its number of permits.
    pub(super) fn pop(&mut self, permits: usize) -> Option<usize> {
        // SAFETY: requests in the list are not moved.
        let first = unsafe { self.first.as_ref() }?;
        if first.permits > permits {
            return None;
        }
        self.first = first.next.get();
        Some(first.permits)
    }

    /// Takes out a request that is in the list. Returns whether it was the first.
    pub(super) fn remove(&mut self, request: &Request) -> bool {
        if ptr::eq(self.first, request) {
            self.first = request.next.get();
            return true;
        }
        // The search takes as long as that in the queue, which took out the thread.
        let mut before = self.first;
        // SAFETY: requests in the list are not moved.
        while let Some(other) = unsafe { before.as_ref() } {
            let next = other.next.get();
            if ptr::eq(next, request) {
                other.next.set(request.next.get());
                if ptr::eq(self.last, request) {
                    self.last = before;
                }
                break;
            }
            before = next;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(requests: &mut Requests) -> Vec<usize> {
        std::iter::from_fn(|| requests.pop(usize::MAX)).collect()
    }

    #[test]
    fn requests_leave_in_order_or_from_anywhere() {
        let one = [1, 2, 3, 4].map(Request::new);
        for gone in 0..one.len() {
            let mut requests = Requests::EMPTY;
            for request in &one {
                // SAFETY: they outlive the list, and were taken out of the previous one.
                unsafe { requests.push(request) };
            }
            assert_eq!(requests.remove(&one[gone]), gone == 0);
            // SAFETY: it has just been taken out.
            unsafe { requests.push(&one[gone]) };
            let rest = (1..=4).filter(|&permits| permits != gone + 1);
            assert_eq!(drain(&mut requests), Vec::from_iter(rest.chain([gone + 1])));
            // SAFETY: the list is empty.
            unsafe { requests.push(&one[gone]) };
            assert!(requests.remove(&one[gone]));
            assert_eq!(drain(&mut requests), []);
        }
    }

    #[test]
    fn a_request_stays_until_there_is_enough_for_it() {
        let (large, small) = (Request::new(5), Request::new(1));
        let mut requests = Requests::EMPTY;
        // SAFETY: both outlive the list.
        unsafe {
            requests.push(&large);
            requests.push(&small);
        }
        assert_eq!(requests.pop(4), None);
        assert_eq!(requests.pop(5), Some(5));
        assert_eq!(requests.pop(0), None);
        assert_eq!(requests.pop(1), Some(1));
        assert_eq!(requests.pop(usize::MAX), None);
    }
}
