//! What is open where a generation begins.
//!
//! Problem: a slice may begin in one generation and end in another, and a file of a flight recorder may begin with any
//! of them: its reader would see ends of slices that have not begun.
//! Scheme: each generation that is kept has a list of the slices that are open at its beginning. The first one of a
//! file begins with them. Their names are texts, because they come from earlier generations, whose ids are void.

use std::collections::HashMap;
use std::sync::Arc;

use super::definitions::{Tables, category};
use super::open_tasks::OpenTasks;
use super::packets::{Open, Packets};
use super::proto::{self, clock_id};
use super::sequence::SHARED;
use super::track;
use super::tracks::Tracks;

/// A slice that is open.
struct Slice {
    track: u64,
    name: Arc<str>,
    category: u64,
}

/// What is open at the end of a generation.
#[derive(Default)]
pub(super) struct Openings {
    /// Those of one track in the order in which they begin.
    slices: Vec<Slice>,
    pub(super) user_tasks: OpenTasks,
    /// The names, so that slices share them.
    names: HashMap<Box<str>, Arc<str>>,
}

impl Openings {
    /// Returns what is open. `before` is what was open at the beginning of this generation, whose tables these are;
    /// `regions` are the names of the open regions of each goroutine.
    pub(super) fn of(packets: &mut Packets, before: &Self, tables: &Tables, regions: &[(u64, &str)]) -> Self {
        let mut openings = Self { user_tasks: packets.user_tasks.open(tables), ..Self::default() };
        let older: HashMap<u64, &Slice> = before.slices.iter().map(|slice| (slice.track, slice)).collect();
        for index in packets.goroutines.indices() {
            let known = &packets.goroutines[index];
            let track = track::goroutine(known.id);
            match (known.open, known.slice) {
                (Open::None, _) => {}
                (_, (0, _)) => {
                    if let Some(slice) = older.get(&track) {
                        openings.add(track, &slice.name, slice.category);
                    }
                }
                (_, (name, category)) => {
                    let category = if category == category::WAIT { category::WAIT_BEFORE } else { category };
                    openings.add(track, tables.name_of(name), category);
                }
            }
        }
        for &(goroutine, name) in regions {
            openings.add(track::regions(goroutine), name, 0);
        }
        for (track, name, category) in packets.open_collector() {
            openings.add(track, &name, category);
        }
        openings
    }

    /// Keeps the slices whose goroutines are in the list, and adds the tracks of these slices' regions to it.
    pub(super) fn keep_listed(&mut self, tracks: &mut Tracks) {
        self.slices.retain(|slice| match track::of_goroutine(slice.track) {
            None => true,
            Some((id, is_region)) => tracks.note_open(id, is_region),
        });
        tracks.end_regions();
    }

    fn add(&mut self, track: u64, name: &str, category: u64) {
        let name = match self.names.get(name) {
            Some(name) => name.clone(),
            None => self.names.entry(name.into()).or_insert_with(|| name.into()).clone(),
        };
        self.slices.push(Slice { track, name, category });
    }

    /// Appends the slices as events at `time`, since boot.
    pub(super) fn put(&self, time: u64, out: &mut Vec<u8>) {
        let user_tasks = self.user_tasks.iter();
        let user_tasks = user_tasks.map(|open| (track::user_task(open.task), &open.name, category::TASK));
        let slices = self.slices.iter().map(|slice| (slice.track, &slice.name, slice.category));
        for (track_uuid, name, category) in slices.chain(user_tasks) {
            let categories = match category {
                0 => Vec::new(),
                category => vec![category::text(category).to_owned()],
            };
            let event = proto::TrackEvent {
                r#type: proto::SLICE_BEGIN,
                track_uuid,
                name: name.to_string(),
                categories,
            };
            let packet = proto::TracePacket {
                trusted_packet_sequence_id: SHARED,
                timestamp: Some(time),
                timestamp_clock_id: clock_id::BOOTTIME,
                track_event: Some(event),
                ..Default::default()
            };
            proto::put(out, &packet);
        }
    }

    /// Returns the memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        let names: usize = self.names.keys().map(|name| 2 * name.len()).sum();
        names + self.user_tasks.memory() + self.slices.len() * size_of::<Slice>()
    }
}
