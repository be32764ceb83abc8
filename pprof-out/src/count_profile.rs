//! Profiles of stacks with the number of things that each stands for: those of a program's own, and threadcreate.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::stack::Stack;

use crate::encode::{self, Encoder, Header};
use crate::sink::Sink;
use crate::taken::Taken;
use crate::text;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// Records of one cut, and what is said of them.
#[derive(Clone)]
pub(crate) struct CountProfile<'a> {
    /// Of the profile, and of its values.
    pub(crate) name: Cow<'a, str>,
    /// In the order in which they are shown.
    pub(crate) records: Vec<CountRecord<'a>>,
    /// Empty for none.
    pub(crate) drop_frames: &'static str,
    pub(crate) comments: Vec<String>,
    pub(crate) taken: Taken,
}

/// A stack and how many things it stands for.
#[derive(Clone)]
pub(crate) struct CountRecord<'a> {
    /// Return addresses, leaf first.
    pub(crate) stack: Cow<'a, [usize]>,
    /// When they were captured.
    pub(crate) span: CaptureSpan,
    pub(crate) leaf: Leaf,
    /// Empty for none.
    pub(crate) labels: Cow<'static, [(String, String)]>,
    pub(crate) count: i64,
}

/// What is hidden at the leaf of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Leaf {
    /// So many functions: a caller wants it so.
    Skip(usize),
    /// The hooks that saw the event.
    Hooks,
}

/// Where a thing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Return addresses from the caller of `add` on, leaf first.
    pub(crate) stack: Box<[usize]>,
    /// Functions that the caller wants hidden. Counted at export, where inlined ones are known.
    pub(crate) skip: usize,
    pub(crate) span: CaptureSpan,
}

/// Distinct places with their counts, the most frequent first, then by address: the order is always the same.
pub(crate) fn counted(places: Vec<Place>) -> Vec<(Place, i64)> {
    let mut counts: HashMap<_, (CaptureSpan, i64)> = HashMap::new();
    for Place { stack, skip, span } in places {
        let (joint, count) = counts.entry((stack, skip)).or_insert((span, 0));
        *joint = joint.and(span);
        *count += 1;
    }
    let mut counted: Vec<_> = counts.into_iter().collect();
    counted.sort_unstable_by(|(a, (_, m)), (b, (_, n))| n.cmp(m).then_with(|| a.cmp(b)));
    counted.into_iter().map(|((stack, skip), (span, count))| (Place { stack, skip, span }, count)).collect()
}

impl<'a> CountProfile<'a> {
    /// The profile of a program's own that holds these places.
    pub(crate) fn of_places(name: String, counted: Vec<(Place, i64)>) -> Self {
        let record = |(place, count): (Place, i64)| CountRecord {
            stack: place.stack.into_vec().into(),
            span: place.span,
            leaf: Leaf::Skip(place.skip),
            labels: Cow::Borrowed(&[]),
            count,
        };
        let records = counted.into_iter().map(record).collect();
        Self { name: name.into(), records, drop_frames: "", comments: Vec::new(), taken: Taken::now() }
    }

    /// Return addresses of every record, leaf first.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack<'_>> + Clone {
        self.records.iter().map(CountRecord::captured)
    }

    /// Writes profile.proto.
    pub(crate) fn write(&self, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
        let mut locations = Locations::new(view);
        locations.prepare(self.stacks());
        let comments = locations.comments(&self.comments);
        let mut encoder = Encoder::new(
            sink,
            &Header {
                sample_types: &[(&self.name, "count")],
                period_type: (&self.name, "count"),
                period: 1,
                default_sample_type: "",
                drop_frames: self.drop_frames,
                comments: &comments,
                taken: self.taken,
            },
        );
        for record in &self.records {
            let visible = record.frames(&mut locations).visible;
            encoder.sample(&locations, visible, |sample, strings| {
                sample.value.push(record.count);
                sample.label.extend(encode::text_labels(strings, &record.labels));
            })?;
        }
        encoder.finish(&locations)
    }

    /// Writes the text form, which `go tool pprof` reads as well.
    pub(crate) fn write_text(&self, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
        let mut locations = Locations::new(view);
        locations.prepare(self.stacks());
        let total = self.records.iter().fold(0i64, |sum, record| sum.saturating_add(record.count));
        let mut text = format!("{} profile: total {total}\n", self.name);
        let mut bytes = Vec::new();
        for record in &self.records {
            let frames = record.frames(&mut locations);
            // A reader has no other way to learn of the skipped ones: the address list starts after them.
            let _ = write!(text, "{}", record.count);
            text::addresses(&mut text, &frames, frames.hidden_at_leaf());
            text.push('\n');
            text::labels(&mut text, &record.labels);
            text::lines(&mut text, &frames);
            text.push('\n');
            bytes.extend_from_slice(text.as_bytes());
            text.clear();
            sink.drain_chunk(&mut bytes)?;
        }
        text::comments(&mut text, &locations.comments(&self.comments));
        if !self.records.is_empty() {
            text::memory_map(&mut text, locations.unambiguous_modules());
        }
        bytes.extend_from_slice(text.as_bytes());
        sink.drain(&mut bytes)?;
        sink.flush()
    }
}

impl CountRecord<'_> {
    fn captured(&self) -> Stack<'_> {
        Stack { addresses: &self.stack, span: self.span }
    }

    pub(crate) fn frames<'l>(&self, locations: &'l mut Locations) -> Frames<'l> {
        match self.leaf {
            Leaf::Skip(functions) => locations.skipped(self.captured(), functions),
            Leaf::Hooks => locations.event(self.captured()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(stack: &[usize], skip: usize) -> Place {
        Place { stack: stack.into(), skip, span: CaptureSpan::UNKNOWN }
    }

    #[test]
    fn counts_equal_places() {
        let (a, b) = (place(&[1, 2], 0), place(&[1, 3], 0));
        let counted = counted(vec![a.clone(), b.clone(), b.clone(), place(&[1, 3], 1)]);
        assert_eq!(counted, [(b, 2), (a, 1), (place(&[1, 3], 1), 1)]);
    }

    fn text_of(profile: &CountProfile<'_>) -> String {
        let mut out = Vec::new();
        profile.write_text(View::default(), &mut Sink::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_of_go() {
        let places = counted(vec![place(&[0x10, 0x20], 0), place(&[0x10, 0x20], 0)]);
        let text = text_of(&CountProfile::of_places("sessions".into(), places));
        let expected = "sessions profile: total 2\n2 @ 0x10 0x20\n#\t0x10\n#\t0x20\n\n--- Memory map: ---\n";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(
            text_of(&CountProfile::of_places("sessions".into(), Vec::new())),
            "sessions profile: total 0\n"
        );
    }

    #[test]
    fn remarks_follow_the_records() {
        let mut profile = CountProfile::of_places("threadcreate".into(), Vec::new());
        profile.comments = vec!["two\nlines".into()];
        assert_eq!(text_of(&profile), "threadcreate profile: total 0\n# two lines\n");
        let record = |stack: &'static [usize], count| CountRecord {
            stack: stack.into(),
            span: CaptureSpan::UNKNOWN,
            leaf: Leaf::Hooks,
            labels: Cow::Borrowed(&[]),
            count,
        };
        profile.records = vec![record(&[0x10], i64::MAX), record(&[0x20], 5)];
        let text = text_of(&profile);
        let expected = "threadcreate profile: total 9223372036854775807\n9223372036854775807 @ 0x10\n#\t0x10\n\n\
                        5 @ 0x20\n#\t0x20\n\n# two lines\n--- Memory map: ---\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
