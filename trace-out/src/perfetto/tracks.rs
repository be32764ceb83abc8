//! The descriptions of tracks: threads, and tasks, which are grouped by what they run and where they were started.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::definitions::Tables;
use super::open_tasks::{OpenTasks, UserTask};
use super::proto::{self, TrackDescriptor};
use super::sequence::SHARED;
use super::track;

/// What a goroutine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A thread, with the kernel's number; 0 if it has not begun, or the number is unknown.
    Thread(u32),
    Task,
}

impl Default for Kind {
    fn default() -> Self {
        Self::Thread(0)
    }
}

/// A goroutine of this generation.
struct Described {
    id: u64,
    kind: Kind,
    start: u64,
    /// Whether a thread of unknown number has slices. A thread that has not begun has no track, because a track cannot
    /// become the kernel's thread later.
    has_slices: bool,
}

/// The tracks of the goroutines and user tasks of a generation.
#[derive(Default)]
pub(super) struct Listed {
    goroutines: Vec<Described>,
    /// The goroutines with regions.
    regions: Vec<u64>,
    /// The user tasks that begin, with their parents, 0 for none, and their names.
    user_tasks: Vec<(u64, u64, u64)>,
}

impl Listed {
    /// Returns the memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.goroutines) + size_of_val(&*self.regions) + size_of_val(&*self.user_tasks)
    }
}

/// The same, while the generation is read.
#[derive(Default)]
pub(super) struct Tracks {
    pub(super) listed: Listed,
    /// The positions of goroutines in the list, and their indices, by id.
    positions: HashMap<u64, (u32, u32)>,
}

impl Tracks {
    /// Begins a generation.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    pub(super) fn add(&mut self, (id, index): (u64, u32), kind: Kind, start: u64) {
        self.positions.insert(id, (self.listed.goroutines.len() as u32, index));
        self.listed.goroutines.push(Described { id, kind, start, has_slices: false });
    }

    /// Returns the index of a goroutine.
    pub(super) fn index_of(&self, id: u64) -> Option<u32> {
        self.positions.get(&id).map(|&(_, index)| index)
    }

    /// Adds a thread of which only events are known.
    pub(super) fn add_thread(&mut self, id: u64, thread_id: u32) {
        let kind = Kind::Thread(thread_id);
        self.listed.goroutines.push(Described { id, kind, start: 0, has_slices: true });
    }

    /// Notes that a goroutine has slices, or events, and what it is.
    pub(super) fn note(&mut self, id: u64, kind: Kind) {
        if let Some(&(position, _)) = self.positions.get(&id) {
            let goroutine = &mut self.listed.goroutines[position as usize];
            (goroutine.kind, goroutine.has_slices) = (kind, true);
        }
    }

    pub(super) fn add_regions(&mut self, id: u64) {
        self.listed.regions.push(id);
    }

    pub(super) fn add_user_task(&mut self, task: u64, parent: u64, name: u64) {
        self.listed.user_tasks.push((task, parent, name));
    }

    /// Notes that a goroutine has a slice that began earlier, one of its regions or another. Returns `false` if the
    /// goroutine is not there.
    pub(super) fn note_open(&mut self, id: u64, is_region: bool) -> bool {
        let Some(&(position, _)) = self.positions.get(&id) else { return false };
        self.listed.goroutines[position as usize].has_slices = true;
        if is_region {
            self.listed.regions.push(id);
        }
        true
    }

    /// Ends the list of goroutines with regions, which has each once.
    pub(super) fn end_regions(&mut self) {
        self.listed.regions.sort_unstable();
        self.listed.regions.dedup();
    }

    /// Takes the list.
    pub(super) fn take(&mut self) -> Listed {
        std::mem::take(self).listed
    }
}

/// The descriptions that a file has.
#[derive(Default)]
pub(super) struct Descriptions {
    /// The tracks of live goroutines, with hashes of their descriptions, and what these say that they are.
    goroutines: HashMap<u64, (Kind, u64)>,
    /// The numbers of the groups of tasks, by name.
    groups: HashMap<String, u64>,
}

impl Descriptions {
    /// Appends the descriptions of the process's own tracks, which come first.
    pub(super) fn begin(&self, program: &str, out: &mut Vec<u8>) {
        let process = proto::ProcessDescriptor { pid: pid(), process_name: program.to_owned() };
        put(out, TrackDescriptor { uuid: track::PROCESS, process: Some(process), ..Default::default() });
        for (uuid, name) in [
            (track::OUTSIDE, "no thread"),
            (track::COLLECTIONS, "garbage collections"),
            (track::STOPS, "stops of the world"),
            (track::TASKS, "async tasks"),
            (track::USER_TASKS, "user tasks"),
        ] {
            put(out, child(uuid, track::PROCESS, name));
        }
        for (uuid, name, unit) in [
            (track::HEAP, "live heap", proto::unit::SIZE_BYTES),
            (track::GOAL, "heap goal", proto::unit::SIZE_BYTES),
            (track::THREADS, "threads", proto::unit::COUNT),
            (track::RUNNABLE, "runnable tasks", proto::unit::COUNT),
            (track::WAITING, "waiting tasks", proto::unit::COUNT),
        ] {
            let counter = Some(proto::CounterDescriptor { unit });
            put(out, TrackDescriptor { counter, ..child(uuid, track::PROCESS, name) });
        }
    }

    /// Appends the descriptions of a generation's tracks that the file does not have.
    pub(super) fn put(&mut self, tracks: &Listed, tables: &Tables, out: &mut Vec<u8>) {
        let before = std::mem::take(&mut self.goroutines);
        for &Described { id, kind, start, has_slices } in &tracks.goroutines {
            let uuid = track::goroutine(id);
            let described = before.get(&uuid).copied();
            // A reader would not accept that a track moves.
            let kind = described.map_or(kind, |(was, _)| was);
            if kind == Kind::Thread(0) && !has_slices && described.is_none() {
                continue;
            }
            let frame = tables.start_of(start).unwrap_or_default();
            let (name, file) = (tables.string_of(frame.function), tables.string_of(frame.file));
            let mut hasher = DefaultHasher::new();
            (kind, name, file, frame.line).hash(&mut hasher);
            let now = (kind, hasher.finish());
            self.goroutines.insert(uuid, now);
            if described == Some(now) {
                continue;
            }
            match kind {
                Kind::Thread(0) => put(out, child(uuid, track::PROCESS, name)),
                Kind::Thread(tid) => {
                    let (tid, thread_name) = (tid.into(), name.to_owned());
                    let thread = proto::ThreadDescriptor { pid: pid(), tid, thread_name };
                    put(out, TrackDescriptor { uuid, thread: Some(thread), ..Default::default() });
                }
                Kind::Task => {
                    let group = match file {
                        "" => name.to_owned(),
                        file => format!("{name} ({file}:{})", frame.line),
                    };
                    let parent = self.group(group, out);
                    put(out, child(uuid, parent, &format!("{name} {id}")));
                }
            }
        }
        for &id in &tracks.regions {
            let uuid = track::regions(id);
            self.goroutines.insert(uuid, (Kind::default(), 0));
            if !before.contains_key(&uuid) {
                put(out, child(uuid, track::goroutine(id), "regions"));
            }
        }
        for &(task, parent, name) in &tracks.user_tasks {
            let parent = if parent == 0 { track::USER_TASKS } else { track::user_task(parent) };
            put(out, child(track::user_task(task), parent, tables.string_of(name)));
        }
    }

    /// Appends the descriptions of user tasks that are open.
    pub(super) fn put_open_tasks(&self, tasks: &OpenTasks, out: &mut Vec<u8>) {
        let mut open = HashSet::new();
        for &UserTask { task, parent, ref name } in tasks.iter() {
            open.insert(task);
            let parent = if open.contains(&parent) { track::user_task(parent) } else { track::USER_TASKS };
            put(out, child(track::user_task(task), parent, name));
        }
    }

    /// Returns the track of a group of tasks.
    fn group(&mut self, name: String, out: &mut Vec<u8>) -> u64 {
        if let Some(&group) = self.groups.get(&name) {
            return group;
        }
        let group = track::group(self.groups.len() as u64);
        put(out, child(group, track::TASKS, &name));
        self.groups.insert(name, group);
        group
    }
}

fn child(uuid: u64, parent_uuid: u64, name: &str) -> TrackDescriptor {
    TrackDescriptor { uuid, parent_uuid, name: name.to_owned(), ..Default::default() }
}

fn put(out: &mut Vec<u8>, descriptor: TrackDescriptor) {
    let packet = proto::TracePacket {
        trusted_packet_sequence_id: SHARED,
        track_descriptor: Some(descriptor),
        ..Default::default()
    };
    proto::put(out, &packet);
}

fn pid() -> i32 {
    std::process::id() as i32
}
