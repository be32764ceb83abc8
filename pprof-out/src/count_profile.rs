//! Profiles of a program's own: stacks with the number of things that each stands for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use crate::encode::{self, Encoder, Header};
use crate::locations::Locations;
use crate::sink::Sink;
use crate::text;

/// Where a thing was added.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Return addresses from the caller of `add` on, leaf first.
    pub(crate) stack: Box<[usize]>,
    /// Functions that the caller wants hidden. Counted at export, where inlined ones are known.
    pub(crate) skip: usize,
}

/// Distinct places with their counts, the most frequent first, then by address: the order is always the same.
pub(crate) fn counted(places: Vec<Place>) -> Vec<(Place, i64)> {
    let mut counts: HashMap<Place, i64> = HashMap::new();
    for place in places {
        *counts.entry(place).or_default() += 1;
    }
    let mut counted: Vec<_> = counts.into_iter().collect();
    counted.sort_unstable_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
    counted
}

/// Writes profile.proto.
pub(crate) fn write(name: &str, places: &[(Place, i64)], sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = Locations::new();
    let mut encoder = Encoder::new(
        sink,
        &Header {
            sample_types: &[(name, "count")],
            period_type: (name, "count"),
            period: 1,
            default_sample_type: "",
            drop_frames: "",
            comments: &[],
            time_nanos: encode::now_nanos(),
        },
    );
    for (place, count) in places {
        let cut = locations.skipped(&place.stack, place.skip).cut();
        encoder.sample(|sample, _| {
            locations.ids(cut, &mut sample.location_id);
            sample.value.push(*count);
        })?;
    }
    encoder.finish(&locations)
}

/// Writes the text form, which `go tool pprof` reads as well.
pub(crate) fn write_text(name: &str, places: &[(Place, i64)], sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = Locations::new();
    let total: i64 = places.iter().map(|(_, count)| count).sum();
    let mut text = format!("{name} profile: total {total}\n");
    let mut bytes = Vec::new();
    for (place, count) in places {
        let frames = locations.skipped(&place.stack, place.skip);
        // A reader has no other way to learn of the skipped ones: the address list starts after them.
        let hidden = frames.cut().frames;
        let _ = write!(text, "{count}");
        text::addresses(&mut text, &place.stack[hidden..]);
        text.push('\n');
        text::lines(&mut text, &frames);
        text.push('\n');
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    if !places.is_empty() {
        text.push_str("--- Memory map: ---\n");
        text::mapped_libraries(&mut text, locations.modules());
    }
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(stack: &[usize], skip: usize) -> Place {
        Place { stack: stack.into(), skip }
    }

    #[test]
    fn counts_equal_places() {
        let (a, b) = (place(&[1, 2], 0), place(&[1, 3], 0));
        let counted = counted(vec![a.clone(), b.clone(), b.clone(), place(&[1, 3], 1)]);
        assert_eq!(counted, [(b, 2), (a, 1), (place(&[1, 3], 1), 1)]);
    }

    #[test]
    fn text_of_go() {
        let places = counted(vec![place(&[0x10, 0x20], 0), place(&[0x10, 0x20], 0)]);
        let mut out = Vec::new();
        write_text("sessions", &places, &mut Sink::new(&mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "sessions profile: total 2\n2 @ 0x10 0x20\n#\t0x10\n#\t0x20\n\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
