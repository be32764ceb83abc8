//! Waits of a task: when a wait begins, and when it is over. Each is an event in the block profile.
//!
//! A wait begins when a poll returns and ends when the task is woken. For a poll that begins without a wake, only its
//! end shows whether it has ended the wait: the poll was for the task's stack, or the code that polls the task
//! (`select!`, `join!`) was woken for another reason. If the future suspends at the same place again, it has waited all
//! the time. If no waker was left to wake it, as under an executor that polls its tasks over and over, each poll ends a
//! wait.

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

/// The callback type of [`observe_waits`].
pub type WaitObserver = fn(u64, &[usize], LabelSetId);

static WAITED: AtomicRef<WaitObserver> = AtomicRef::none();

/// Calls `waited` from now on for each completed wait of a task that the block profile may include: with the ticks that
/// it took, and with the stack and the labels that the task has noted. Called in hooks.
pub fn observe_waits(waited: &'static WaitObserver) {
    WAITED.set(Some(waited));
}

/// A wait that may be over.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// The stack at which the task waits; `None` if it is not known.
    stack: Option<&'static TaskStack>,
    labels: LabelSetId,
    /// In ticks of the clock.
    since: u64,
    until: u64,
    /// Whether there is a waker that could end the wait.
    has_waker: bool,
}

impl Task {
    /// Begins a poll that needs notes: stacks are wanted, or the last poll has left notes, or the task was not woken.
    /// `before` is the task's previous state. Returns its wait if, as far as is known, the poll does not end it.
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

    /// Ends a poll after which the task waits, perhaps still for what it waited for before.
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

    /// Ends a poll that began without a wake. Returns whether the task waits at another place than before.
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

    /// Ends the wait before a poll in which the future was ready.
    #[inline]
    pub(super) fn end_wait(&self, wait: Option<Wait>) {
        if let Some(wait) = wait {
            self.charge(wait);
        }
    }

    /// Charges the wait that began at the end of the last poll, if it was a wait. `before` is the task's previous
    /// state.
    pub(super) fn charge_last(&self, before: Doing) {
        let noted = self.awaits.noted().get();
        if request::has_waits() && !noted.has(Flag::WokenInside) && !noted.has(Flag::HasPanicked) {
            self.charge(self.wait(before));
        }
    }

    /// Returns the wait that began at the end of the last poll.
    fn wait(&self, before: Doing) -> Wait {
        let since = self.since.load(Ordering::Relaxed);
        let woken = if before.is_woken() { self.woken.load(Ordering::Acquire) } else { 0 };
        // The stored tick may come from a delayed waker of an earlier poll.
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
        // The guard restores `errno`.
        let _hook = Hook::enter();
        if let Some(waited) = WAITED.get() {
            waited(clock::since(wait.since, wait.until), stack, wait.labels);
        }
    }

    /// Notes the tick at which it is about to be woken, perhaps not for the first time.
    #[inline]
    pub(super) fn note_when_woken(&self) {
        if request::has_waits() && !self.doing().is_woken() {
            // Before the wake is noted in the word, so that the thread that polls next reads this tick. Of concurrent
            // wakers the latest tick is kept.
            self.woken.fetch_max(clock::ticks(), Ordering::Release);
        }
    }
}
