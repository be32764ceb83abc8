//! Waits of a task: when one begins, and when it is over. In the block profile each is an event.
//!
//! A wait begins when a poll returns and ends when the task is woken. A poll that begins without a wake tells at its end only
//! whether it has ended the wait: it was for the task's stack, or what polls the task (`select!`, `join!`) was woken for another
//! reason. If the future suspends at the same place again, it has waited all the time. If there was no waker to wake it by, as
//! under an executor that polls its tasks over and over, each poll ends a wait.

use core::sync::atomic::Ordering;

use super::{Doing, Task};
use crate::atomic_ref::AtomicRef;
use crate::clock;
use crate::hook::Hook;
use crate::labels::LabelSetId;
use crate::stack::marker;
use crate::task::await_stack::TaskStack;
use crate::task::noted::{Flag, NotedSeen};
use crate::task::request;

/// What [`observe_waits`] was given.
pub type WaitObserver = fn(u64, &[usize], LabelSetId);

static WAITED: AtomicRef<WaitObserver> = AtomicRef::none();

/// Calls `waited` from now on when a wait of a task is over that the block profile may have: with the ticks that it took, and with
/// the stack and the labels that the task has noted. From hooks.
pub fn observe_waits(waited: &'static WaitObserver) {
    WAITED.set(Some(waited));
}

/// A wait that may be over.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// Where; `None` if it is not known.
    stack: Option<&'static TaskStack>,
    labels: LabelSetId,
    /// Ticks of the clock.
    since: u64,
    until: u64,
    /// Whether there is a waker that could end it.
    has_waker: bool,
}

impl Task {
    /// A poll begins that there is something to note of: stacks are wanted, or something is noted of the last one, or the task was not
    /// woken. `before` is what the task did until now. Returns its wait if the poll does not end it as far as is known.
    #[inline(never)]
    pub(super) fn resume(&self, before: Doing) -> Option<Wait> {
        let noted = self.awaits.noted().get();
        let may_wait_on = before.has_waker() && !before.is_woken();
        let waits_on = may_wait_on && !noted.has(Flag::IsForeign) && !noted.has(Flag::HasPanicked);
        if before.polls() != 0 && !waits_on {
            self.charge_last(before);
        }
        let wait = (waits_on && request::is_on()).then(|| self.wait(before));
        let is_foreign = noted.has(Flag::IsForeign);
        let mut now = NotedSeen::NOTHING.with(Flag::WaitsOn, waits_on).with(Flag::IsForeign, is_foreign);
        if request::is_on() {
            now = now.with(Flag::OtherSide, !noted.has(Flag::OtherSide));
        }
        self.awaits.noted().set(now);
        wait
    }

    /// A poll ends, after which the task waits, perhaps on for what it waited for before.
    #[inline]
    pub(super) fn begin_wait(&self, before: Option<Wait>) {
        if self.awaits.noted().get().has(Flag::WaitsOn) && !self.has_moved_on(before) {
            return;
        }
        let now = clock::ticks();
        self.since.store(now, Ordering::Release);
        if request::is_on() {
            self.note_end_of_poll(now);
        }
    }

    #[cold]
    fn note_end_of_poll(&self, now: u64) {
        request::look_at_lease(now);
        if request::has_waits() && self.doing().is_woken() {
            self.awaits.noted().add(Flag::WokenInside);
        }
    }

    /// A poll that began without a wake ends. Whether the task waits at another place than before.
    #[cold]
    fn has_moved_on(&self, before: Option<Wait>) -> bool {
        let was = before.and_then(|wait| Some((wait, wait.stack?)));
        match was.filter(|(_, stack)| !self.awaits.is_empty() && !self.awaits.has(stack)) {
            Some((wait, _)) => {
                self.charge(wait);
                true
            }
            None => {
                self.awaits.note_as_one();
                false
            }
        }
    }

    /// The future was ready in a poll before which the task may have waited.
    #[inline]
    pub(super) fn end_wait(&self, wait: Option<Wait>) {
        if let Some(wait) = wait {
            self.charge(wait);
        }
    }

    /// The wait is over that began at the end of the last poll, if it was one. `before` is what the task did until now.
    pub(super) fn charge_last(&self, before: Doing) {
        let noted = self.awaits.noted().get();
        if request::has_waits() && !noted.has(Flag::WokenInside) && !noted.has(Flag::HasPanicked) {
            self.charge(self.wait(before));
        }
    }

    /// The wait that began at the end of the last poll.
    fn wait(&self, before: Doing) -> Wait {
        let since = self.since.load(Ordering::Relaxed);
        let woken = if before.is_woken() { self.woken.load(Ordering::Acquire) } else { 0 };
        // What has woken it may have been about to note that since an earlier poll.
        let is_known = clock::since(since, woken) > 0;
        let awaits = self.awaits.get();
        Wait {
            stack: awaits.main(),
            labels: self.await_labels(&awaits).unwrap_or_else(|| self.labels()),
            since,
            until: if is_known { woken } else { clock::ticks() },
            has_waker: before.is_woken()
                || before.has_waker()
                || self.awaits.noted().get().has(Flag::IsForeign),
        }
    }

    fn charge(&self, wait: Wait) {
        if !request::has_waits() {
            return;
        }
        let unknown = match wait.has_waker {
            true => [marker::frame(marker::task_was_not_polled_for_its_stack)],
            false => [marker::frame(marker::task_has_no_waker)],
        };
        let stack = wait.stack.map_or(&unknown[..], |stack| stack.stack());
        // Leaves `errno` as it was.
        let _hook = Hook::enter();
        if let Some(waited) = WAITED.get() {
            waited(clock::since(wait.since, wait.until), stack, wait.labels);
        }
    }

    /// It is about to be woken, perhaps not for the first time.
    #[inline]
    pub(super) fn note_when_woken(&self) {
        if request::has_waits() && !self.doing().is_woken() {
            // Before the word says so, so that the thread that polls it next reads this. The last one of those who do so at one time.
            self.woken.fetch_max(clock::ticks(), Ordering::Release);
        }
    }
}
