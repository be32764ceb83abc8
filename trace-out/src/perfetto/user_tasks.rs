//! The user tasks of a trace, each on its own track. They begin and end on any thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::definitions::{Tables, category, iid};
use super::event::TrackEvent;
use super::open_tasks::{OpenTasks, UserTask};
use super::track;
use super::tracks::Tracks;
use super::unordered::Unordered;

/// The most open tasks. Beyond that the oldest is ended: ends that were lost would otherwise add up.
const OPEN: usize = 1 << 16;

/// The number of ids in a block.
const BLOCK: u64 = 256;

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
    open: BTreeMap<u64, Open>,
    changes: Vec<Change>,
    /// The blocks of the last list, by number, and the numbers of those that are out of date.
    blocks: BTreeMap<u64, Arc<[UserTask]>>,
    outdated: BTreeSet<u64>,
    /// Ends of tasks that began before the trace, or were ended because there were too many.
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
        let Self { open, changes, outdated, unmatched, .. } = self;
        outdated.clear();
        changes.sort_by_key(|change| (change.time, change.begins.is_none()));
        // Ends that seem older than the beginning, because the clocks of two cores differ.
        let mut early: HashMap<u64, u64> = HashMap::new();
        for Change { time, task, stack, begins } in changes.drain(..) {
            let on = track::user_task(task);
            outdated.insert(task / BLOCK);
            match begins {
                Some((parent, name)) => {
                    if open.len() >= OPEN
                        && let Some((oldest, _)) = open.pop_first()
                    {
                        unordered.put(track::user_task(oldest), time, TrackEvent::end());
                        outdated.insert(oldest / BLOCK);
                    }
                    let parent = if open.contains_key(&parent) { parent } else { 0 };
                    tracks.add_user_task(task, parent, name);
                    let event = TrackEvent { stack, ..TrackEvent::begin(iid(name), category::TASK) };
                    unordered.put(on, time, event);
                    match early.remove(&task) {
                        Some(stack) => unordered.put(on, time, TrackEvent { stack, ..TrackEvent::end() }),
                        None => drop(open.insert(task, Open { parent, name, text: None })),
                    }
                }
                None if open.remove(&task).is_some() => {
                    unordered.put(on, time, TrackEvent { stack, ..TrackEvent::end() });
                }
                None => drop(early.insert(task, stack)),
            }
        }
        *unmatched += early.len() as u64;
    }

    /// Returns the tasks that are open. To be called after each [`settle`](Self::settle), with the generation's tables.
    pub(super) fn open(&mut self, tables: &Tables) -> OpenTasks {
        let mut texts: HashMap<u64, Arc<str>> = HashMap::new();
        let mut new = 0;
        for number in std::mem::take(&mut self.outdated) {
            let first = number * BLOCK;
            let tasks = self.open.range_mut(first..first.saturating_add(BLOCK));
            let block: Arc<[UserTask]> = tasks
                .map(|(&task, open)| {
                    let text = || {
                        texts.entry(open.name).or_insert_with(|| tables.string_of(open.name).into()).clone()
                    };
                    let name = open.text.get_or_insert_with(text).clone();
                    UserTask { task, parent: open.parent, name }
                })
                .collect();
            if block.is_empty() {
                self.blocks.remove(&number);
                continue;
            }
            new += size_of_val(&*block);
            self.blocks.insert(number, block);
        }
        new += texts.values().map(|text| text.len()).sum::<usize>();
        OpenTasks { blocks: self.blocks.values().cloned().collect(), new }
    }
}
