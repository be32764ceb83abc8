//! The user tasks of a trace, each on its own track. They begin and end on any thread.

use std::collections::HashMap;
use std::sync::Arc;

use super::definitions::{Tables, category, iid};
use super::event::TrackEvent;
use super::openings::UserTask;
use super::track;
use super::tracks::Tracks;
use super::unordered::Unordered;

/// Open tasks, beyond which no more are shown: ends that were lost would otherwise add up.
const OPEN: usize = 1 << 20;

/// A beginning or an end.
struct Change {
    time: u64,
    task: u64,
    stack: u64,
    /// The parent and the name of a task that begins.
    begins: Option<(u64, u64)>,
}

/// A task that is open.
struct Open {
    /// 0 for none.
    parent: u64,
    /// The id of its name in the generation in which it began.
    name: u64,
    /// Its name, once another generation has needed it.
    text: Option<Arc<str>>,
}

/// The tasks that are open, and the changes in this generation.
#[derive(Default)]
pub(super) struct UserTasks {
    open: HashMap<u64, Open>,
    changes: Vec<Change>,
    /// Ends of tasks that began before the trace, and tasks beyond [`OPEN`].
    pub(super) unmatched: u64,
}

impl UserTasks {
    pub(super) fn begin(&mut self, time: u64, task: u64, (parent, name, stack): (u64, u64, u64)) {
        self.changes.push(Change { time, task, stack, begins: Some((parent, name)) });
    }

    pub(super) fn end(&mut self, time: u64, task: u64, stack: u64) {
        self.changes.push(Change { time, task, stack, begins: None });
    }

    /// Adds the slices of this generation. The threads were read one after the other, so the end of a task may have
    /// come before its beginning.
    pub(super) fn settle(&mut self, tracks: &mut Tracks, unordered: &mut Unordered) {
        let Self { open, changes, unmatched } = self;
        changes.sort_by_key(|change| (change.time, change.begins.is_none()));
        // Ends that seem older than the beginning, because the clocks of two cores differ.
        let mut early: HashMap<u64, u64> = HashMap::new();
        for Change { time, task, stack, begins } in changes.drain(..) {
            let on = track::user_task(task);
            match begins {
                Some((parent, name)) if open.len() < OPEN => {
                    let parent = if open.contains_key(&parent) { parent } else { 0 };
                    tracks.add_user_task(task, parent, name);
                    let event = TrackEvent { stack, ..TrackEvent::begin(iid(name), category::TASK) };
                    unordered.put(on, time, event);
                    match early.remove(&task) {
                        Some(stack) => unordered.put(on, time, TrackEvent { stack, ..TrackEvent::end() }),
                        None => drop(open.insert(task, Open { parent, name, text: None })),
                    }
                }
                Some(_) => *unmatched += 1,
                None if open.remove(&task).is_some() => {
                    unordered.put(on, time, TrackEvent { stack, ..TrackEvent::end() });
                }
                None => drop(early.insert(task, stack)),
            }
        }
        *unmatched += early.len() as u64;
    }

    /// Returns the tasks that are open, in the order of their ids. To be called once in each generation, with its
    /// tables.
    pub(super) fn open(&mut self, tables: &Tables) -> Vec<UserTask> {
        for open in self.open.values_mut() {
            open.text.get_or_insert_with(|| tables.string_of(open.name).into());
        }
        let tasks = self.open.iter().map(|(&task, open)| UserTask {
            task,
            parent: if self.open.contains_key(&open.parent) { open.parent } else { 0 },
            name: open.text.clone().unwrap_or_default(),
        });
        let mut tasks: Vec<UserTask> = tasks.collect();
        tasks.sort_unstable_by_key(|open| open.task);
        tasks
    }
}
