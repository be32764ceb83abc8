//! The writer of an event: exclusive access to a lane for one event.
//!
//! # Changes of goroutines
//!
//! A change is a compare-and-swap on the goroutine's word, which yields the number of the change, followed by a record
//! of it. Its tick is read between the load of the word and the swap. So the tick is later than the previous change,
//! whose swap the load has seen, and earlier than the next one. Thus a cause is never younger than its effect, as far
//! as the cores' counters agree.
//!
//! A writer that finds a goroutine's word in another generation declares the goroutine (`RecordKind::Status`) before
//! the change. If that generation is newer than the writer's own, the event first moves to it, so that an effect is
//! never in an earlier generation than its cause.
//!
//! An event that gets no buffer is *blind*: it changes the word's mark to [`LOST_GENERATION`], and records nothing.

mod tasks;

pub(crate) use tasks::{
    change_unrecorded, ended_unrecorded, panicked_unrecorded, poll_ended_unrecorded, woken_unrecorded,
};

use rtprof_runtime::clock;
use rtprof_runtime::goroutine::Goroutine;
use rtprof_runtime::goroutine::start;
use rtprof_runtime::goroutine::start::{MAX_TITLE, Start};
use rtprof_runtime::goroutine::state::{State, StateWord};
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::primitive::{AtomicU64, Ordering};

use crate::buffer::Buffer;
use crate::declared::{Declared as _, LOST_GENERATION};
use crate::lane::Lane;
use crate::record::{NAMED_LATER, RecordKind, StackId, StringId, Writer};
use crate::recorder::{Losses, Recorder};
use crate::tables::{self, LookupCache};

pub(crate) struct LaneWriter<'a> {
    recorder: &'static Recorder,
    lane: &'a Lane,
    /// 0 when blind.
    generation: u32,
    buffer: Option<&'static Buffer>,
}

impl<'a> LaneWriter<'a> {
    /// A writer without a buffer: [`LaneWriter::open`] must follow. (A writer made complete at once would be copied
    /// from place to place, which takes longer than the rest of the event.)
    #[inline(always)]
    pub(crate) fn new(recorder: &'static Recorder, lane: &'a Lane, generation: u32) -> Self {
        Self { recorder, lane, generation, buffer: None }
    }

    /// Finds the buffer.
    #[inline(always)]
    pub(crate) fn open(&mut self) {
        if self.lane.generation.load(Ordering::Relaxed) == self.generation {
            // SAFETY: a lane with a generation has a buffer. Only this thread, within an event, or the drain that has
            // seen no event in progress takes the buffer out.
            let buffer = unsafe { &*self.lane.buffer.load(Ordering::Relaxed) };
            // SAFETY: this writer is the buffer's only user during the event.
            if buffer.body.with_mut(|body| unsafe { (*body).has_room(0) }) {
                self.buffer = Some(buffer);
                return;
            }
        }
        self.renew(self.generation);
    }

    /// Makes room for another event when several are written at once, or for an event with a message of `message`
    /// bytes.
    pub(crate) fn make_room(&mut self, message: usize) {
        let Some(buffer) = self.buffer else { return };
        // SAFETY: this writer is the buffer's only user during the event.
        if !buffer.body.with_mut(|body| unsafe { (*body).has_room(message) }) {
            self.renew(self.generation);
        }
    }

    /// Continues in a new buffer of `generation`.
    #[cold]
    fn renew(&mut self, generation: u32) {
        self.generation = generation;
        self.buffer = None;
        if generation != 0 {
            self.buffer = self.recorder.renew(self.lane, generation, clock::ticks());
            if self.buffer.is_none() {
                self.generation = 0;
            }
        }
    }

    /// Whether this event is blind: what it writes is lost.
    #[inline]
    pub(crate) fn is_blind(&self) -> bool {
        self.buffer.is_none()
    }

    /// Whether this event is blind. If so, counts it as lost.
    #[inline]
    pub(crate) fn count_if_lost(&self) -> bool {
        if self.buffer.is_some() {
            return false;
        }
        self.recorder.losses.events.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Returns the generation in which the event is recorded; 0 when blind.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the tick of an event that is not the effect of another thread's event.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        clock::ticks()
    }

    /// Appends a record.
    #[inline]
    pub(crate) fn write<const N: usize>(&mut self, kind: RecordKind, tick: u64, arguments: [u64; N]) {
        self.append(tick, |writer, delta| writer.put(kind, delta, arguments));
    }

    /// Appends a log.
    pub(crate) fn write_log(&mut self, task: u64, category: StringId, stack: StackId, message: &[u8]) {
        self.make_room(message.len());
        if self.count_if_lost() {
            return;
        }
        let tick = clock::ticks();
        self.append(tick, |writer, delta| writer.put_log(delta, task, category, stack, message));
    }

    #[inline]
    fn append(&mut self, tick: u64, put: impl FnOnce(&mut Writer<'_>, u64)) {
        let Some(buffer) = self.buffer else { return };
        buffer.body.with_mut(|body| {
            // SAFETY: this writer is the buffer's only user during the event.
            let body = unsafe { &mut *body };
            let delta = clock::since(body.last, tick);
            body.last += delta;
            let mut writer = body.writer();
            put(&mut writer, delta);
            body.len = writer.position();
            body.count += 1;
        });
    }

    /// Returns the id that `look_up` finds; 0, counted as lost in `losses`, if there is none.
    #[inline]
    fn find(
        &self,
        losses: impl FnOnce(&Losses) -> &AtomicU64,
        look_up: impl FnOnce(&mut LookupCache) -> Option<u32>,
    ) -> u32 {
        if self.is_blind() {
            return 0;
        }
        // SAFETY: this writer is the only user of the lane's cache during the event.
        let id = self.lane.cache.with_mut(|cache| look_up(unsafe { &mut *cache }));
        id.unwrap_or_else(|| {
            losses(&self.recorder.losses).fetch_add(1, Ordering::Relaxed);
            0
        })
    }

    /// Returns the caller's stack; 0, counted as lost, if it cannot be kept.
    #[inline]
    pub(crate) fn stack(&mut self) -> StackId {
        self.find(|losses| &losses.stacks, tables::stack_here)
    }

    /// Returns the id of a text; 0, counted as lost, if it cannot be kept.
    #[inline]
    pub(crate) fn string(&mut self, text: &str) -> StringId {
        self.find(|losses| &losses.strings, |cache| tables::string(text, cache))
    }

    /// Returns the id of a goroutine's [`title`](start::title), or [`NAMED_LATER`]; 0, counted as lost, if it cannot be
    /// kept.
    pub(crate) fn title(&mut self, name: &str, start: Option<Start>) -> StringId {
        match start {
            _ if self.is_blind() => 0,
            Some(start) if name.is_empty() => {
                self.find(|losses| &losses.strings, |cache| tables::title(start, cache))
            }
            None if name.is_empty() => NAMED_LATER,
            _ => self.string(start::title(name, start, &mut [0; MAX_TITLE])),
        }
    }

    /// Moves to the present generation if the word is not of the writer's. If it did, returns `true`: the caller must
    /// read the word again, as it may be of an even later generation.
    #[inline]
    fn follow(&mut self, word: StateWord) -> bool {
        if word.generation() == self.generation || self.generation == 0 {
            return false;
        }
        let present = self.recorder.generation();
        let is_past = present != self.generation;
        if is_past {
            self.renew(present);
        }
        is_past
    }

    /// Changes the state of a goroutine, and declares the goroutine if it is not declared yet. `false` if another
    /// thread has changed the word.
    #[inline]
    fn change(&mut self, goroutine: &Goroutine, word: StateWord, to: State, tick: u64) -> bool {
        let generation = if self.generation == 0 { word.lost() } else { self.generation };
        let changed = goroutine.change(word, word.next(to, generation)).is_ok();
        if changed && word.generation() != self.generation {
            self.thread_status(goroutine.id(), goroutine, word, tick);
        }
        changed
    }

    #[cold]
    fn thread_status(&mut self, id: u64, goroutine: &Goroutine, word: StateWord, tick: u64) {
        if self.buffer.is_none() {
            return;
        }
        let name = goroutine.with_name(|name| self.title(name, goroutine.start()));
        let created_by = goroutine.created_by().and_then(|bucket| tables::stack(bucket.stack())).unwrap_or(0);
        let thread = if word.state() == State::Running { id } else { 0 };
        self.status(id, word, tick, Some((thread, goroutine.thread_id())), (name, created_by));
    }

    /// Writes the status of a thread's goroutine, with its thread if it runs and the kernel's number, or of a task; with
    /// its name, and the stack that created it.
    fn status(
        &mut self,
        id: u64,
        word: StateWord,
        tick: u64,
        own_thread: Option<(u64, u32)>,
        (name, created_by): (StringId, StackId),
    ) {
        let (thread, thread_id) = own_thread.unwrap_or_default();
        let is_after_loss = word.generation() == LOST_GENERATION;
        let arguments = [
            id,
            word.number(),
            word.state().number().into(),
            thread,
            thread_id.into(),
            name.into(),
            created_by.into(),
            u64::from(is_after_loss) | u64::from(own_thread.is_none()) << 1,
        ];
        self.write(RecordKind::Status, tick, arguments);
    }

    /// Returns the id of these return addresses; 0, counted as lost, if they cannot be kept.
    pub(crate) fn stack_of(&mut self, frames: &[usize]) -> StackId {
        self.find(|losses| &losses.stacks, |_| tables::stack(frames))
    }

    /// Declares a goroutine in the state that its word says, unless it is declared in this generation.
    pub(crate) fn declare(&mut self, goroutine: &Goroutine) {
        loop {
            let id = goroutine.id();
            let word = goroutine.state();
            if id == 0 || word.state() == State::Dead || self.generation == 0 {
                return;
            }
            if self.follow(word) {
                continue;
            }
            if word.generation() == self.generation {
                return;
            }
            let tick = clock::ticks_after_loads();
            if goroutine.change(word, word.declared(self.generation)).is_ok() {
                self.thread_status(id, goroutine, word, tick);
                // The slot may have been reused for another goroutine between the two loads; then that goroutine was
                // declared as well.
                let now = goroutine.id();
                if now != id && now != 0 {
                    self.thread_status(now, goroutine, word, tick);
                }
                return;
            }
        }
    }

    /// Ensures that the current thread's goroutine is declared and running, because an event of its thread proves that
    /// it runs. (It may be marked as waiting, in a closure that was announced as a wait but does something else too.)
    #[inline]
    pub(crate) fn settle(&mut self, own: &Goroutine) {
        let word = own.state();
        if word.generation() != self.generation || word.state() != State::Running {
            self.settle_slow(own);
        }
    }

    #[cold]
    fn settle_slow(&mut self, own: &Goroutine) {
        loop {
            let word = own.state();
            if self.follow(word) {
                continue;
            }
            let tick = clock::ticks_after_loads();
            match word.state() {
                State::Dead => return,
                State::Running => {
                    if word.generation() == self.generation || self.generation == 0 {
                        return;
                    }
                    if own.change(word, word.declared(self.generation)).is_ok() {
                        return self.thread_status(own.id(), own, word, tick);
                    }
                }
                state => {
                    if self.change(own, word, State::Running, tick) {
                        return match state {
                            State::Runnable => {
                                let number = word.next(State::Running, 0).number();
                                let (id, labels) = (own.id(), labels::current_id());
                                match labels {
                                    LabelSetId::NONE => self.write(RecordKind::Start, tick, [id, number]),
                                    _ => {
                                        let arguments = [id, number, labels.bits().into()];
                                        self.write(RecordKind::StartLabelled, tick, arguments);
                                    }
                                }
                            }
                            State::Syscall => self.write(RecordKind::SyscallEnd, tick, []),
                            _ => self.write(RecordKind::Wake, tick, []),
                        };
                    }
                }
            }
        }
    }

    /// Changes the current thread's goroutine from running to another state. Returns the tick.
    #[inline]
    pub(crate) fn leave_running(&mut self, own: &Goroutine, to: State) -> u64 {
        loop {
            self.settle(own);
            let word = own.state();
            if self.follow(word) {
                continue;
            }
            let tick = clock::ticks();
            if !matches!(word.state(), State::Running | State::Dead) {
                // The start of a trace took the thread for one that waits in the kernel.
                continue;
            }
            // No other thread changes the state of a running goroutine, but another may declare it at the same time.
            if word.state() == State::Dead || self.change(own, word, to, tick) {
                return tick;
            }
        }
    }

    /// Makes a waiting goroutine runnable, on behalf of the current thread, whose stack is `stack`. Does nothing if the
    /// goroutine is not waiting, that is if `waits` returns `false` for its state.
    pub(crate) fn unblock(&mut self, goroutine: &Goroutine, stack: StackId, waits: &dyn Fn(State) -> bool) {
        loop {
            let id = goroutine.id();
            let word = goroutine.state();
            if !waits(word.state()) {
                return;
            }
            if self.follow(word) {
                continue;
            }
            let tick = clock::ticks_after_loads();
            if self.change(goroutine, word, State::Runnable, tick) {
                let number = word.next(State::Runnable, 0).number();
                return self.write(RecordKind::Unblock, tick, [id, number, stack.into()]);
            }
        }
    }
}

impl Drop for LaneWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        self.recorder.end_event(self.lane);
    }
}
