//! Waits of a task: when a wait begins, and when it is over. Each is an event in the block profile.
//!
//! A wait begins when a poll returns and ends when the task is woken. For a poll that begins without a wake, only its
//! end shows whether it has ended the wait: the poll was for the task's stack, or the code that polls the task
//! (`select!`, `join!`) was woken for another reason. If the future suspends at the same place again, it has waited all
//! the time. If no waker was left to wake it, as under an executor that polls its tasks over and over, each poll ends a
//! wait.

use core::sync::atomic::Ordering;

use super::{Doing, Task};
use crate::clock;
use crate::hook::Hook;
use crate::labels::LabelSetId;
use crate::memory::atomic_ref::AtomicRef;
use crate::stack::marker;
use crate::task::await_stack::TaskStack;
use crate::task::noted::{Flag, NotedSeen};
use crate::task::request;

/// What an observer of waits is asked and told. Its functions take no lock and allocate nothing.
pub struct WaitObserver {
    /// Decides about the wait that may follow a poll, at the beginning of the poll. `None` leaves the wait out, and then the
    /// task need not note where it awaits. Not called while it notes that in every poll in any case.
    pub choose: fn() -> Option<WaitChoice>,
    /// Is told that the current thread has spent so many ticks in order to note where a task awaits, as was decided.
    pub noted: fn(u64),
    /// Is told of a completed wait that was not left out: what was decided about it, the ticks that it took, and the stack and
    /// the labels that the task has noted.
    pub waited: fn(WaitChoice, u64, &[usize], LabelSetId),
}

/// What the observer has decided about a wait at its beginning: a number with a meaning for the observer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitChoice(pub u16);

impl WaitChoice {
    /// Nothing was decided, perhaps because the wait began before the profile was on.
    pub const LATER: Self = Self(0);
}

static OBSERVER: AtomicRef<WaitObserver> = AtomicRef::none();

/// Calls the functions of `observer` from now on, while the block profile includes waits of tasks.
pub fn observe_waits(observer: &'static WaitObserver) {
    OBSERVER.set(Some(observer));
}

/// Runs `note`, which notes where a task awaits, and tells the observer what it costs.
#[inline]
pub(super) fn noting(note: impl FnOnce()) {
    // Other polls would be charged to those that were chosen.
    let before = if request::has_only_waits() { Some(clock::ticks()) } else { None };
    note();
    if let Some(before) = before
        && let Some(observer) = OBSERVER.get()
    {
        (observer.noted)(clock::since(before, clock::ticks()));
    }
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
    /// `None` if the block profile leaves it out.
    choice: Option<WaitChoice>,
}

impl Task {
    /// Begins a poll that needs notes: stacks are wanted, or the last poll has left notes, or the task was not woken.
    /// `before` is the task's previous state, `choice` the result of [`Task::choose`], if that was called. Returns its wait if,
    /// as far as is known, the poll does not end it.
    #[inline(never)]
    pub(super) fn resume(&self, before: Doing, choice: Option<bool>) -> Option<Wait> {
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
            let is_left_out = match waits_on {
                true => noted.has(Flag::IsLeftOut),
                false => !choice.unwrap_or_else(|| self.choose()),
            };
            let notes_stacks = !is_left_out || request::has_every_poll();
            // Else the same side as before, so that a leaf that has a clone of the waker need not clone it again.
            let is_other_side = noted.has(Flag::OtherSide) != notes_stacks;
            now = now
                .with(Flag::IsLeftOut, is_left_out)
                .with(Flag::NotesStacks, notes_stacks)
                .with(Flag::OtherSide, is_other_side);
        } else {
            self.set_choice(WaitChoice::LATER);
        }
        self.awaits.noted().set(now);
        wait
    }

    /// Has it decided what becomes of the next wait. Returns `false` if the block profile leaves it out.
    #[inline]
    pub(super) fn choose(&self) -> bool {
        let is_asked = request::has_only_waits();
        let choice = match OBSERVER.get().filter(|_| is_asked) {
            Some(observer) => (observer.choose)(),
            None => Some(WaitChoice::LATER),
        };
        if let Some(choice) = choice {
            self.set_choice(choice);
        }
        choice.is_some()
    }

    /// Ends a poll after which the task waits, perhaps still for what it waited for before.
    #[inline]
    pub(super) fn begin_wait(&self, before: Option<Wait>) {
        let noted = self.awaits.noted().get();
        if noted.has(Flag::WaitsOn) && !self.has_moved_on(before) {
            return;
        }
        let now = clock::ticks();
        self.since.store(now, Ordering::Release);
        if request::is_on() && !(noted.is_left_out() && request::has_only_waits()) {
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
        let is_wait =
            [Flag::WokenInside, Flag::HasPanicked, Flag::IsLeftOut].iter().all(|&flag| !noted.has(flag));
        if request::has_waits() && is_wait {
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
        let noted = self.awaits.noted().get();
        Wait {
            stack: awaits.main(),
            labels: self.await_labels(&awaits).unwrap_or_else(|| self.labels()),
            since,
            until: if is_known { woken } else { clock::ticks() },
            has_waker: before.is_woken() || before.has_waker() || noted.has(Flag::IsForeign),
            choice: (!noted.has(Flag::IsLeftOut)).then(|| self.choice()),
        }
    }

    fn charge(&self, wait: Wait) {
        let Some(choice) = wait.choice.filter(|_| request::has_waits()) else { return };
        let unknown = match wait.has_waker {
            true => [marker::frame(marker::task_was_not_polled_for_its_stack)],
            false => [marker::frame(marker::task_has_no_waker)],
        };
        let stack = wait.stack.map_or(&unknown[..], |stack| stack.stack());
        // The guard restores `errno`.
        let _hook = Hook::enter();
        if let Some(observer) = OBSERVER.get() {
            (observer.waited)(choice, clock::since(wait.since, wait.until), stack, wait.labels);
        }
    }

    /// Notes the tick at which it is about to be woken, perhaps not for the first time.
    #[inline]
    pub(super) fn note_when_woken(&self) {
        let is_wanted = || !self.awaits.noted().get().has(Flag::IsLeftOut);
        if request::has_waits() && is_wanted() && !self.doing().is_woken() {
            // Before the wake is noted in the word, so that the thread that polls next reads this tick. Of concurrent
            // wakers the latest tick is kept.
            self.woken.fetch_max(clock::ticks(), Ordering::Release);
        }
    }
}
