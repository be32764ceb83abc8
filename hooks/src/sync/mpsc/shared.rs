//! The state that the two ends of a channel share.
//!
//! All state is behind one mutex, except for the counts that each side reads before it takes the mutex. A thread that
//! goes to sleep gives up the mutex only when it is in the wait queue. So the next holder of the mutex that finds a
//! waiter can wake it after giving the mutex up, and never misses it.
//!
//! A sender that finds no room leaves its message in a slot on its stack, and the slot's address here. The receiver
//! moves the message of the sender that waits longest, and wakes it with nothing left to do. Slots and sleepers are in
//! the same order, because both are entered with the mutex held.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use super::sender::Handle;
use super::{SendError, TrySendError};
use crate::inner::primitive::{AtomicUsize, Ordering};
use crate::inner::queue::{self, Sleep};
use crate::inner::spin::{SHORT, spin_while};
use crate::inner::wait::{Wait, WaitReason};
use crate::sync::{Mutex, MutexGuard, QueueMutex};

/// More messages than there can be.
pub(super) const UNBOUNDED: usize = usize::MAX;

/// In [`Shared::pending`]: the last sender is gone.
const GONE: usize = !(usize::MAX >> 1);

pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    /// The number of messages behind the mutex, and [`GONE`]. Written with the mutex held, read without. The receiver
    /// sleeps at its address.
    pending: AtomicUsize,
    /// The number of senders. Senders sleep at its address.
    pub(super) senders: AtomicUsize,
    bound: usize,
}

pub(super) struct State<T> {
    messages: VecDeque<T>,
    /// The messages of senders that wait for room, the longest waiting first. If there are any, there is no room.
    blocked: VecDeque<Blocked<T>>,
    /// The receiver sleeps, or is about to, and no thread has sent it a message or woken it since.
    is_receiver_waiting: bool,
    has_receiver: bool,
    has_senders: bool,
}

/// The message of a sender that waits, on its stack. `None` when it was taken.
type Slot<T> = UnsafeCell<Option<T>>;

/// The address of a slot. It is valid as long as it is in [`State::blocked`], since the sender sleeps.
struct Blocked<T>(NonNull<Slot<T>>);

// SAFETY: it gives access to the message in the slot, which the holder of the mutex may take.
unsafe impl<T: Send> Send for Blocked<T> {}

/// The result of a receive.
pub(super) struct Received<T> {
    pub(super) message: Option<T>,
    /// A sender's message was taken, and the sender must be woken.
    pub(super) unblocks: bool,
}

impl<T> State<T> {
    fn has_room(&self, bound: usize) -> bool {
        // A waiting receiver counts as room for one more message.
        self.messages.len() < bound.saturating_add(usize::from(self.is_receiver_waiting))
    }

    fn pending(&self) -> usize {
        let gone = if self.has_senders { 0 } else { GONE };
        (self.messages.len() + self.blocked.len()) | gone
    }

    pub(super) fn has_senders(&self) -> bool {
        self.has_senders
    }

    pub(super) fn set_receiver_waiting(&mut self, is_waiting: bool) {
        self.is_receiver_waiting = is_waiting;
    }

    /// Takes the message of the sender that waits longest.
    fn unblock(&mut self) -> Option<T> {
        let Blocked(slot) = self.blocked.pop_front()?;
        // SAFETY: the sender sleeps until it is woken, which happens later, and does not touch the slot until then. The
        // caller holds the mutex, so no other thread does.
        unsafe { (*slot.as_ref().get()).take() }
    }
}

impl<T> Shared<T> {
    /// Makes a channel: the handle of its first sender, and the shared state for its receiver.
    pub(super) fn open(bound: usize) -> (Handle<T>, Arc<Self>) {
        let state = State {
            messages: VecDeque::new(),
            blocked: VecDeque::new(),
            is_receiver_waiting: false,
            has_receiver: true,
            has_senders: true,
        };
        let (pending, senders) = (AtomicUsize::new(0), AtomicUsize::new(1));
        let shared = Arc::new(Self { state: Mutex::new(state), pending, senders, bound });
        (Handle::first(shared.clone()), shared)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Whether the mutex protects neither messages nor the end of the channel.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        // Relaxed: a message whose sending happens before this call is visible.
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Whether the senders are gone, and all their messages received.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        // Acquire: what the last sender did is over.
        self.pending.load(Ordering::Acquire) == GONE
    }

    /// Publishes the changed counts, before the mutex is given up.
    fn publish(&self, state: &State<T>) {
        self.pending.store(state.pending(), Ordering::Release);
    }

    pub(super) fn send(&self, message: T) -> Result<(), SendError<T>> {
        match self.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(message)) => Err(SendError(message)),
            Err(TrySendError::Full(message)) => self.send_slow(message),
        }
    }

    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let state = self.lock();
        if !state.has_receiver {
            drop(state);
            return Err(TrySendError::Disconnected(message));
        }
        if !state.has_room(self.bound) {
            drop(state);
            return Err(TrySendError::Full(message));
        }
        self.put(state, message);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, message: T) {
        state.messages.push_back(message);
        self.publish(&state);
        self.wake_receiver(state);
    }

    /// Wakes the receiver if it waits, after giving up the mutex, which the receiver takes first.
    fn wake_receiver(&self, mut state: MutexGuard<'_, State<T>>) {
        let is_waiting = std::mem::replace(&mut state.is_receiver_waiting, false);
        drop(state);
        if is_waiting {
            // SAFETY: the key is an address of this object, and the closures neither panic nor park nor wake.
            unsafe { queue::wake(self.receiver_key(), queue::first(), |_| false) };
        }
    }

    #[cold]
    fn send_slow(&self, message: T) -> Result<(), SendError<T>> {
        // Spinning is useless while others wait already, and for a rendezvous.
        spin_while(SHORT, || self.bound != 0 && self.pending.load(Ordering::Relaxed) == self.bound);
        let mut state = self.lock();
        if !state.has_receiver {
            drop(state);
            return Err(SendError(message));
        }
        if state.has_room(self.bound) {
            self.put(state, message);
            return Ok(());
        }
        let slot = Slot::new(Some(message));
        state.blocked.push_back(Blocked(NonNull::from(&slot)));
        self.publish(&state);
        let mut wait = Wait::prepare(WaitReason::ChanSend);
        // Without a deadline it sleeps until its slot is off the list.
        self.sleep(state, self.sender_key(), &mut wait, None);
        wait.end();
        match slot.into_inner() {
            None => Ok(()),
            Some(message) => Err(SendError(message)),
        }
    }

    /// Takes a message. The receiver of an unbounded channel takes the other messages too, into `batch`, which is
    /// empty.
    pub(super) fn take(&self, state: &mut State<T>, batch: &mut VecDeque<T>) -> Received<T> {
        if self.bound == UNBOUNDED && state.messages.len() > 1 {
            std::mem::swap(&mut state.messages, batch);
            self.publish(state);
            return Received { message: batch.pop_front(), unblocks: false };
        }
        let mut message = state.messages.pop_front();
        let mut unblocks = false;
        if (message.is_none() || state.messages.len() < self.bound)
            && let Some(next) = state.unblock()
        {
            unblocks = true;
            match message {
                None => message = Some(next),
                Some(_) => state.messages.push_back(next),
            }
        }
        if message.is_some() {
            self.publish(state);
        }
        Received { message, unblocks }
    }

    /// Wakes the sender that has slept longest: its message was taken.
    pub(super) fn wake_sender(&self) {
        // SAFETY: the key is an address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.sender_key(), queue::first(), |_| true) };
    }

    /// Puts the receiver to sleep until it is woken, or until the deadline.
    pub(super) fn sleep_as_receiver(
        &self,
        state: MutexGuard<'_, State<T>>,
        wait: &mut Wait,
        deadline: Option<Instant>,
    ) -> Sleep {
        self.sleep(state, self.receiver_key(), wait, deadline)
    }

    /// Closes the channel after its last sender.
    #[cold]
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.has_senders = false;
        self.publish(&state);
        self.wake_receiver(state);
    }

    /// Closes the channel after its receiver. Returns the messages that were not received.
    pub(super) fn abandon(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.has_receiver = false;
        // The waiting senders find their messages in their slots.
        let has_blocked = !std::mem::take(&mut state.blocked).is_empty();
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        if has_blocked {
            // SAFETY: the key is an address of this object, and the closures neither panic nor park nor wake.
            unsafe { queue::wake(self.sender_key(), queue::everybody, |_| false) };
        }
        messages
    }

    fn receiver_key(&self) -> usize {
        &raw const self.pending as usize
    }

    fn sender_key(&self) -> usize {
        &raw const self.senders as usize
    }

    fn sleep(
        &self,
        state: MutexGuard<'_, State<T>>,
        key: usize,
        wait: &mut Wait,
        deadline: Option<Instant>,
    ) -> Sleep {
        std::mem::forget(state);
        // SAFETY: the guard, which was just forgotten, proved that this thread holds the mutex. The key is an address
        // of this object.
        unsafe { sleep(self.state.raw(), key, wait, deadline) }
    }
}

/// Gives up `mutex` and sleeps at `key`. A function without type parameters, so that all types of messages share one
/// copy.
///
/// # Safety
/// This thread holds the mutex. The caller owns the address.
unsafe fn sleep(mutex: &QueueMutex, key: usize, wait: &mut Wait, deadline: Option<Instant>) -> Sleep {
    let validate = |wait: &mut Wait| {
        wait.run();
        true
    };
    // SAFETY: the caller holds the mutex.
    let before_sleep = || unsafe { mutex.unlock() };
    // SAFETY: the caller owns the address. The closures neither panic nor park; unlocking may wake.
    unsafe { queue::park(key, 0, wait, validate, before_sleep, |_, _| {}, deadline) }
}
