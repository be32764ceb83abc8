//! The threads of a snapshot that do not wait in our hooks: goroutines that do something else, and threads that no hook
//! has seen.

use super::recorded::Recorded;
use crate::goroutine::{Goroutine, Live, Visit};

pub(super) use imp::{Others, count_strangers, list, look};

/// The process's threads, as far as they are known before the cut.
pub(super) enum Listed {
    /// The process has as many threads as these goroutines.
    Only(Live),
    /// The kernel's ids of all threads.
    All(Vec<u32>),
    /// Unknown, because /proc is not readable.
    Unknown,
}

impl Listed {
    /// Returns how many threads there may be besides goroutines.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::All(threads) => threads.len(),
            Self::Only(_) | Self::Unknown => 0,
        }
    }
}

#[cfg(rtprof_supported)]
mod imp {
    use std::collections::{HashMap, HashSet};

    use super::super::asking::{self, Outcome, Places, Thread};
    use super::super::recorded::{GoroutineKind, KernelState};
    use super::super::recording::Seen;
    use super::super::signal::{self, Signal};
    use super::super::visit::{add_marker, visit};
    use super::*;
    use crate::goroutine::state::State;
    use crate::goroutine::{self, SLOTS};
    use crate::labels::LabelSetId;
    use crate::modules::CaptureSpan;
    use crate::process::proc::{self, NoStatus, Status};
    use crate::stack::marker::{self, Marker};
    use crate::thread::kernel_thread;

    /// Lists the threads of the process.
    pub(crate) fn list() -> Listed {
        proc::threads().map_or(Listed::Unknown, Listed::All)
    }

    /// Lists the threads of the process, unless there are only these goroutines.
    pub(crate) fn look(live: Live) -> Listed {
        if threads() == Some(live.count) { Listed::Only(live) } else { list() }
    }

    /// The threads that the coordinator notes while it visits all goroutines. Made before the snapshot: nothing is
    /// allocated during it.
    pub(crate) struct Others {
        /// The threads to be asked.
        threads: Vec<Thread>,
        /// The kernel's ids of all goroutines' threads.
        known: Vec<u32>,
        live: Live,
        places: Box<Places>,
        is_too_small: bool,
    }

    impl Others {
        /// Makes lists with room for `room` threads.
        pub(crate) fn new(room: usize) -> Self {
            let (threads, known) = (Vec::with_capacity(room), Vec::with_capacity(room));
            Self { threads, known, live: Live::default(), places: Places::new(), is_too_small: false }
        }

        /// Notes a goroutine that was live at the cut.
        pub(crate) fn note(&mut self, goroutine: &'static Goroutine, id: u64, visit: Visit) {
            // A consistent record: another goroutine may be in the slot by now.
            let Some(thread) = goroutine.thread().filter(|thread| thread.goroutine == id) else { return };
            self.live.add(id);
            self.note_known(thread.thread_id);
            if visit == Visit::Runs {
                self.add(thread.thread_id, Some((goroutine, id)));
            }
        }

        /// Adds the listed threads that have no goroutine, after all goroutines were noted. Returns `false` if they are
        /// unknown: goroutines have begun or ended since the process had as many threads as goroutines.
        pub(crate) fn add_strangers(&mut self, listed: &Listed) -> bool {
            match listed {
                Listed::Only(live) => return self.live == *live,
                Listed::Unknown => {}
                Listed::All(threads) => {
                    self.note_known(kernel_thread::thread_id());
                    self.known.sort_unstable();
                    for &thread in threads {
                        if self.known.binary_search(&thread).is_err() {
                            self.add(thread, None);
                        }
                    }
                }
            }
            true
        }

        fn note_known(&mut self, thread: u32) {
            self.is_too_small |= self.known.len() == self.known.capacity();
            if !self.is_too_small {
                self.known.push(thread);
            }
        }

        fn add(&mut self, thread: u32, goroutine: Option<(&'static Goroutine, u64)>) {
            self.is_too_small |= self.threads.len() == self.threads.capacity();
            if !self.is_too_small {
                self.threads.push(Thread::new(thread, goroutine));
            }
        }

        /// Returns whether there were more threads than room: some were left out.
        pub(crate) fn is_too_small(&self) -> bool {
            self.is_too_small
        }

        /// Records all noted threads in snapshot `number`, except threads without a goroutine that do not answer.
        /// Returns whether a goroutine was found dead: its thread had ended unreported.
        pub(crate) fn ask(&mut self, number: u64, is_proc_there: bool) -> bool {
            match way(is_proc_there) {
                Ok(signal) => asking::ask(number, signal, &mut self.threads, &mut self.places),
                Err(why) => {
                    for thread in &mut self.threads {
                        thread.outcome = Outcome::Silent(why);
                    }
                }
            }
            let mut was_dead = false;
            for thread in &self.threads {
                let Some((goroutine, id)) = thread.goroutine else { continue };
                match thread.outcome {
                    // The goroutine may have begun to wait in our hooks by now.
                    Outcome::Silent(why) if visit(number, goroutine, id) == Visit::Runs => {
                        goroutine.progress().settle(number, || add_marker(goroutine, id, Seen::Running, why));
                    }
                    Outcome::Gone if goroutine.id() == id => {
                        was_dead = true;
                        goroutine::end(goroutine, id);
                    }
                    _ => {}
                }
            }
            was_dead
        }

        /// Adds what /proc says to `all`, the goroutines of the snapshot.
        pub(crate) fn complete(self, all: &mut Vec<Recorded>) {
            if self.threads.is_empty() {
                return;
            }
            let recorded: HashMap<u32, usize> =
                all.iter().enumerate().map(|(at, recorded)| (recorded.thread_id, at)).collect();
            for thread in &self.threads {
                let recorded = recorded.get(&thread.id).map(|&at| &mut all[at]);
                match (thread.outcome, recorded) {
                    (Outcome::Settled, Some(recorded)) if thread.goroutine.is_none() => {
                        name_by(recorded, &thread.status);
                    }
                    (Outcome::Silent(why), Some(recorded)) if *recorded.stack == [marker::frame(why)] => {
                        tell_of(recorded, thread);
                    }
                    (Outcome::Silent(why), None) if thread.goroutine.is_none() => {
                        all.extend(silent_stranger(thread, why))
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the signal by which threads are asked, or the reason why they are not.
    fn way(is_proc_there: bool) -> Result<Signal, Marker> {
        if !signal::thread_signals() {
            return Err(marker::thread_signals_are_off);
        }
        if !is_proc_there {
            return Err(marker::proc_cannot_be_read);
        }
        Signal::get().ok_or(marker::no_signal_is_free)
    }

    /// Gives a thread the kernel's name, unless its own name or start is known.
    fn name_by(recorded: &mut Recorded, status: &Status) {
        if recorded.name.is_empty() && recorded.start.is_none() {
            recorded.name = status.name();
        }
    }

    /// Notes the kernel's state of a thread whose stack is missing. Returns `false` if the thread has ended.
    fn tell_of(recorded: &mut Recorded, thread: &Thread) -> bool {
        let status = match Status::of(thread.id) {
            Ok(status) => status,
            Err(why) => return why == NoStatus::Unreadable,
        };
        name_by(recorded, &status);
        if recorded.state == State::Running && matches!(status.state, b'S' | b'D') {
            recorded.state = State::Syscall;
        }
        let waits_in = proc::waits_in(thread.id);
        recorded.kernel = Some(KernelState { state: status.state.into(), waits_in });
        true
    }

    /// Returns a record of a thread that has no goroutine and did not answer.
    fn silent_stranger(thread: &Thread, why: Marker) -> Option<Recorded> {
        let (started, is_exiting) = proc::birth(thread.id)?;
        let mut recorded = Recorded {
            // No two threads have the same start time and id, and both together are larger than any goroutine id: those
            // count from 1, and a machine runs for some seconds before it runs a program.
            id: started << 22 | u64::from(thread.id),
            kind: GoroutineKind::Thread,
            thread_id: thread.id,
            name: String::new(),
            start: None,
            created_by: None,
            creator: 0,
            state: State::Running,
            waited_ticks: 0,
            is_leaked: false,
            labels: LabelSetId::NONE,
            stack: vec![marker::frame(why)].into(),
            branches: Vec::new(),
            polled: Vec::new(),
            polls: 0,
            span: CaptureSpan::now(),
            kernel: None,
        };
        (!is_exiting && tell_of(&mut recorded, thread)).then_some(recorded)
    }

    /// Returns the number of threads of the process, where it is known.
    pub(crate) fn threads() -> Option<usize> {
        proc::count()
    }

    /// Returns the number of threads besides the `live` goroutines, without those that are about to end: a thread may
    /// be joined a moment before the kernel has removed it.
    pub(crate) fn count_strangers(live: Live) -> usize {
        let Listed::All(threads) = look(live) else { return 0 };
        let goroutines = SLOTS.iter().filter_map(Goroutine::thread);
        let known: HashSet<u32> = goroutines.map(|thread| thread.thread_id).collect();
        let is_there = |thread: u32| proc::birth(thread).is_some_and(|(_, is_exiting)| !is_exiting);
        threads.into_iter().filter(|thread| !known.contains(thread) && is_there(*thread)).count()
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use super::*;

    pub(crate) struct Others;

    impl Others {
        pub(crate) fn new(_room: usize) -> Self {
            Self
        }

        pub(crate) fn note(&mut self, _goroutine: &'static Goroutine, _id: u64, _visit: Visit) {}

        pub(crate) fn add_strangers(&mut self, _listed: &Listed) -> bool {
            true
        }

        pub(crate) fn is_too_small(&self) -> bool {
            false
        }

        pub(crate) fn ask(&mut self, _number: u64, _is_proc_there: bool) -> bool {
            false
        }

        pub(crate) fn complete(self, _all: &mut Vec<Recorded>) {}
    }

    pub(crate) fn list() -> Listed {
        Listed::Unknown
    }

    pub(crate) fn look(_live: Live) -> Listed {
        Listed::Unknown
    }

    pub(crate) fn threads() -> Option<usize> {
        None
    }

    pub(crate) fn count_strangers(_live: Live) -> usize {
        0
    }
}
