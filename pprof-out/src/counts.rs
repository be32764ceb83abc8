//! Profiles that count things: custom profiles of the program, and threadcreate, the stacks that created threads.

use std::collections::HashMap;

use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::thread::thread_create::{self, ThreadCount};

use crate::description::Description;
use crate::kind::ProfileKind;
use crate::record::{Leaf, Record};
use crate::snapshot::Snapshot;

/// The place where a thing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddSite {
    /// Return addresses from the caller of `add` on, leaf first.
    pub(crate) stack: Box<[usize]>,
    /// Number of functions that the caller wants hidden. Applied at export, where inlined functions are known.
    pub(crate) skip: usize,
    pub(crate) span: CaptureSpan,
}

/// Makes the snapshot of a custom profile with these places: the most frequent first, then by address, so that the
/// order is always the same.
pub(crate) fn of_add_sites(name: String, places: Vec<AddSite>) -> Snapshot {
    /// Stack and `skip`.
    type At = (Box<[usize]>, usize);
    let mut counts: HashMap<At, (CaptureSpan, i64)> = HashMap::new();
    for AddSite { stack, skip, span } in places {
        let (joint, count) = counts.entry((stack, skip)).or_insert((span, 0));
        *joint = joint.and(span);
        *count += 1;
    }
    let mut counted: Vec<_> = counts.into_iter().collect();
    counted.sort_unstable_by(|(a, (_, m)), (b, (_, n))| n.cmp(m).then_with(|| a.cmp(b)));
    let record = |((stack, skip), (span, count)): (At, (CaptureSpan, i64))| Record {
        span,
        ..Record::new(stack.into_vec(), Leaf::Skip(skip), [count, 0])
    };
    let records = counted.into_iter().map(record).collect();
    Snapshot::new(ProfileKind::Custom { name }, records, Vec::new())
}

/// Returns how many threads have been created up to now. Go: `countThreadCreate`.
pub(crate) fn threads_created() -> usize {
    let counts = thread_create::thread_counts();
    let total = counts.iter().fold(0u64, |sum, count| sum.saturating_add(count.created));
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// Returns the stacks that have created threads up to now: the one that created the most first, then by address.
pub(crate) fn of_threads(of: &'static Description) -> Snapshot {
    let mut counts = thread_create::thread_counts();
    counts.sort_unstable_by(|a, b| {
        b.created.cmp(&a.created).then_with(|| a.stack.addresses.cmp(b.stack.addresses))
    });
    let record = |ThreadCount { stack, created }| {
        Record::of_kept(stack, Leaf::Hooks, [i64::try_from(created).unwrap_or(i64::MAX), 0])
    };
    let records = counts.into_iter().map(record).collect();
    Snapshot::new(ProfileKind::Count { of }, records, of.comments())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::THREAD_CREATE;

    fn place(stack: &[usize], skip: usize) -> AddSite {
        AddSite { stack: stack.into(), skip, span: CaptureSpan::UNKNOWN }
    }

    fn text_of(snapshot: &Snapshot) -> String {
        let mut out = Vec::new();
        snapshot.write_to(&mut out, 1).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn counts_equal_places() {
        let (a, b) = (place(&[1, 2], 0), place(&[1, 3], 0));
        let counted = of_add_sites("test".into(), vec![a, b.clone(), b, place(&[1, 3], 1)]);
        let counted: Vec<_> =
            counted.records.iter().map(|record| (&*record.stack, record.leaf, record.counts[0])).collect();
        let skip = Leaf::Skip;
        assert_eq!(counted, [(&[1, 3][..], skip(0), 2), (&[1, 2], skip(0), 1), (&[1, 3], skip(1), 1)]);
    }

    #[test]
    fn text_of_go() {
        let places = vec![place(&[0x10, 0x20], 0), place(&[0x10, 0x20], 0)];
        let text = text_of(&of_add_sites("sessions".into(), places));
        let expected = "sessions profile: total 2\n2 @ 0x10 0x20\n#\t0x10\n#\t0x20\n\n--- Memory map: ---\n";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text_of(&of_add_sites("sessions".into(), Vec::new())), "sessions profile: total 0\n");
    }

    #[test]
    fn remarks_follow_the_records() {
        let profile = |records| {
            Snapshot::new(
                ProfileKind::Count { of: &THREAD_CREATE.description },
                records,
                vec!["two\nlines".into()],
            )
        };
        assert_eq!(text_of(&profile(Vec::new())), "threadcreate profile: total 0\n# two lines\n");
        let record = |stack: &'static [usize], count| Record::new(stack, Leaf::Hooks, [count, 0]);
        let text = text_of(&profile(vec![record(&[0x10], i64::MAX), record(&[0x20], 5)]));
        let expected = "threadcreate profile: total 9223372036854775807\n9223372036854775807 @ 0x10\n#\t0x10\n\n\
                        5 @ 0x20\n#\t0x20\n\n# two lines\n--- Memory map: ---\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
