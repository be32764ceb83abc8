//! The waiters of a condition variable: a list through their stacks.

use std::cell::Cell;
use std::ptr;

use crate::inner::account::Stake;
use crate::inner::mutex::QueueMutex;

/// A waiting thread. Lies on its stack, and is in the list until it is notified or gives up.
pub(super) struct Waiter {
    pub(super) mutex: *const QueueMutex,
    pub(super) token: usize,
    /// The tick at which it was moved to the queue of the mutex, and its stake in the mutex's account.
    pub(super) moved: Cell<Option<(u64, Stake)>>,
    /// Whether it is in the list.
    is_listed: Cell<bool>,
    previous: Cell<*const Waiter>,
    next: Cell<*const Waiter>,
}

/// The waiters, the longest waiting first.
pub(super) struct List {
    /// The process that the waiters belong to.
    process: u32,
    pub(super) first: *const Waiter,
    last: *const Waiter,
}

impl Waiter {
    pub(super) fn new(mutex: &QueueMutex, token: usize) -> Self {
        Self {
            mutex,
            token,
            moved: Cell::new(None),
            is_listed: Cell::new(false),
            previous: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }
}

impl List {
    pub(super) const EMPTY: Self = Self { process: 0, first: ptr::null(), last: ptr::null() };

    /// Makes the list belong to `process`, and empties it if it belonged to another one.
    pub(super) fn claim(&mut self, process: u32) {
        if self.process != process {
            *self = Self { process, ..Self::EMPTY };
        }
    }

    /// Removes all waiters.
    pub(super) fn clear(&mut self) {
        self.iter().for_each(|waiter| waiter.is_listed.set(false));
        *self = Self { process: self.process, ..Self::EMPTY };
    }

    /// # Safety
    /// `waiter` is not moved until it is removed.
    pub(super) unsafe fn push(&mut self, waiter: *const Waiter) {
        // SAFETY: waiters in the list are not moved.
        unsafe {
            (*waiter).is_listed.set(true);
            (*waiter).previous.set(self.last);
            match self.last.as_ref() {
                Some(last) => last.next.set(waiter),
                None => self.first = waiter,
            }
        }
        self.last = waiter;
    }

    /// Removes a waiter, if it is in the list.
    pub(super) fn remove(&mut self, waiter: &Waiter) {
        if !waiter.is_listed.replace(false) {
            return;
        }
        let (previous, next) = (waiter.previous.get(), waiter.next.get());
        // SAFETY: the neighbours of a listed waiter are listed too, and waiters in the list are not moved.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.set(next),
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => next.previous.set(previous),
                None => self.last = previous,
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        // SAFETY: waiters in the list are valid.
        let at = |waiter: *const Waiter| unsafe { waiter.as_ref() };
        std::iter::successors(at(self.first), move |waiter| at(waiter.next.get()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn listed(list: &List) -> Vec<*const Waiter> {
        list.iter().map(|waiter| &raw const *waiter).collect()
    }

    #[test]
    fn waiters_leave_in_any_order_and_once() {
        let mutex = <QueueMutex as lock_api::RawMutex>::INIT;
        let waiters = [(); 4].map(|()| Waiter::new(&mutex, 0));
        let mut list = List::EMPTY;
        list.claim(1);
        for waiter in &waiters {
            // SAFETY: they outlive the list's use of them.
            unsafe { list.push(waiter) };
        }
        for number in [1, 1, 3, 0] {
            list.remove(&waiters[number]);
        }
        assert_eq!(listed(&list), [&raw const waiters[2]]);
        list.clear();
        list.remove(&waiters[2]);
        assert!(listed(&list).is_empty() && list.last.is_null());
    }

    /// The parent's waiters do not exist in a child, and their stacks may be used again.
    #[test]
    fn waiters_of_the_parent_are_not_touched_in_a_child() {
        let mutex = <QueueMutex as lock_api::RawMutex>::INIT;
        let (parents, childs) = (Waiter::new(&mutex, 0), Waiter::new(&mutex, 0));
        let mut list = List::EMPTY;
        list.claim(1);
        // SAFETY: it outlives the list's use of it.
        unsafe { list.push(&parents) };
        list.claim(2);
        // SAFETY: so does this one.
        unsafe { list.push(&childs) };
        assert!(parents.next.get().is_null());
        assert_eq!(listed(&list), [&raw const childs]);
        list.remove(&childs);
        assert!(listed(&list).is_empty());
    }
}
