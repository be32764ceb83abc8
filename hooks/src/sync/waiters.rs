//! The waiters of a condition variable: a list through their stacks.

use std::cell::Cell;
use std::ptr;

use super::mutex::QueueMutex;
use crate::account::Stake;

/// A thread that waits. Lies on its stack, and in the list until it is notified or gives up.
pub(super) struct Waiter {
    pub(super) mutex: *const QueueMutex,
    pub(super) token: usize,
    /// When it was moved to the queue of the mutex, and its stake in that account.
    pub(super) moved: Cell<Option<(u64, Stake)>>,
    /// Whether it is in the list.
    is_listed: Cell<bool>,
    previous: Cell<*const Waiter>,
    next: Cell<*const Waiter>,
}

/// The waiters, the longest waiting first.
pub(super) struct List {
    /// Whose it is.
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

    /// Forgets the waiters of another process.
    pub(super) fn claim(&mut self, process: u32) {
        if self.process != process {
            *self = Self { process, ..Self::EMPTY };
        }
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.iter().for_each(|waiter| waiter.is_listed.set(false));
        *self = Self { process: self.process, ..Self::EMPTY };
    }

    /// # Safety
    /// `waiter` stays where it is until it is removed.
    pub(super) unsafe fn push(&mut self, waiter: *const Waiter) {
        // SAFETY: the caller's promise, now and when the last one came.
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

    /// Takes it out, if it is in.
    pub(super) fn remove(&mut self, waiter: &Waiter) {
        if !waiter.is_listed.replace(false) {
            return;
        }
        let (previous, next) = (waiter.previous.get(), waiter.next.get());
        // SAFETY: the neighbours of what is in the list are in it too, so they are there.
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
        // SAFETY: what is in the list is there.
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

    /// They are gone, and their stacks may be used again.
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
