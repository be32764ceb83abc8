//! Misuse by callers: rates of any value, slices too short, names unknown or taken, writers that fail. Errors say so,
//! and the next call works.

use std::hint::black_box;
use std::io::{Error, ErrorKind, Result, Write};

use rtprof::pprof;
use test_support::child;
use test_support::profile::{INUSE_OBJECTS, Profile};

#[inline(never)]
fn some_objects() -> Vec<Vec<u8>> {
    black_box((1..500).map(|size| vec![1_u8; size]).collect())
}

#[test]
fn rate_of_any_value() {
    child::isolated("rate_of_any_value", || {
        assert_eq!(rtprof::mem_profile_rate(), 512 << 10, "Go's default");
        let mut previous = 512 << 10;
        for rate in [0, 1, 2, 3, 4095, usize::MAX / 2, usize::MAX, isize::MAX as usize, 1] {
            assert_eq!(rtprof::set_mem_profile_rate(rate), previous, "the previous rate comes back");
            assert_eq!(rtprof::mem_profile_rate(), rate);
            previous = rate;
            let objects = some_objects();
            for record in rtprof::mem_profile(true) {
                assert!(record.alloc_bytes >= 0 && record.in_use_bytes() >= 0, "rate {rate}: {record:?}");
            }
            let mut text = Vec::new();
            rtprof::pprof::lookup("heap").expect("built in").write_to(&mut text, 1).expect("a Vec takes all");
            let text = String::from_utf8(text).expect("a text");
            let period =
                text.lines().next().and_then(|line| line.rsplit_once("@ heap/")).expect("a header").1;
            assert!(
                period.parse::<i64>().is_ok_and(|n| n > 0),
                "rate {rate}: readers want a number: {period}"
            );
            for sample in Profile::heap().samples() {
                assert!(sample.values.iter().all(|&value| value >= 0), "rate {rate}: {sample:?}");
            }
            drop(objects);
        }
    });
}

#[test]
fn rate_zero_records_nothing_and_rate_one_all() {
    child::isolated("rate_zero_records_nothing_and_rate_one_all", || {
        rtprof::set_mem_profile_rate(0);
        let unseen = some_objects();
        assert!(Profile::heap().samples_of("some_objects").is_empty(), "rate 0 is off");
        rtprof::set_mem_profile_rate(1);
        let seen = some_objects();
        let in_use = Profile::heap().totals_of("some_objects")[INUSE_OBJECTS];
        assert_eq!(in_use, 500, "rate 1 is all: 499 objects and their list");
        rtprof::set_mem_profile_rate(0);
        drop(seen);
        let in_use = Profile::heap().totals_of("some_objects")[INUSE_OBJECTS];
        assert_eq!(in_use, 0, "frees are found when the rate is 0");
        drop(unseen);
    });
}

/// Go's (n, ok): a slice that is too short is not written to, and the needed length is returned.
#[test]
fn short_slice_is_not_written() {
    child::isolated("short_slice_is_not_written", || {
        rtprof::set_mem_profile_rate(1);
        let objects = some_objects();
        rtprof::set_mem_profile_rate(0);
        let marker = rtprof::MemProfileRecord { alloc_bytes: -77, ..Default::default() };
        let (needed, ok) = rtprof::mem_profile_into(&mut [], true);
        assert!(!ok && needed > 10, "{needed} records");
        let mut short = vec![marker.clone(); needed - 1];
        assert_eq!(rtprof::mem_profile_into(&mut short, true), (needed, false));
        assert!(short.iter().all(|record| record.alloc_bytes == -77), "nothing is written");
        let mut enough = vec![marker; needed + 1];
        assert_eq!(rtprof::mem_profile_into(&mut enough, true), (needed, true));
        assert!(enough[..needed].iter().all(|record| record.alloc_bytes > 0 && !record.stack().is_empty()));
        assert_eq!(enough[needed].alloc_bytes, -77, "nor anything beyond");
        drop(objects);
        // Records without objects in use are left out unless the caller asks for them.
        let (all, in_use) = (rtprof::mem_profile(true).len(), rtprof::mem_profile(false).len());
        assert!(in_use < all, "{in_use} of {all}");
        assert!(rtprof::mem_profile(false).iter().all(|record| record.in_use_bytes() > 0));
    });
}

#[test]
fn names_are_looked_up() {
    child::isolated("names_are_looked_up", || {
        assert!(pprof::lookup("no such profile").is_none());
        assert!(pprof::lookup("").is_none());
        let names: Vec<_> = pprof::profiles().iter().map(|profile| profile.name().to_owned()).collect();
        for name in ["heap", "allocs"] {
            assert!(names.contains(&name.to_owned()), "{name} is in {names:?}");
            assert_eq!(pprof::lookup(name).expect("it is built in").name(), name);
        }
        assert!(names.is_sorted(), "as Go's are: {names:?}");
    });
}

#[test]
fn custom_profile_refuses_what_is_wrong() {
    child::isolated("custom_profile_refuses_what_is_wrong", || {
        let profile = pprof::Profile::new("api.files").expect("the name is free");
        for taken in ["api.files", "heap", "allocs"] {
            let error = pprof::Profile::new(taken).map(drop).expect_err("the name is taken").to_string();
            assert!(error.contains(taken), "the error says which: {error}");
        }
        assert!(pprof::Profile::new("").is_err(), "Go panics: a profile needs a name");

        profile.add(1, 0).expect("the key is new");
        profile.add(2, 0).expect("the key is new");
        let error = profile.add(1, 0).expect_err("the key is there").to_string();
        assert!(!error.is_empty() && error.contains('1'), "{error}");
        assert_eq!(profile.count(), 2);
        profile.remove(7);
        profile.remove(1);
        profile.remove(1);
        assert_eq!(profile.count(), 1, "removing what is not there changes nothing");
        profile.add(1, usize::MAX).expect("skipping more frames than there are is no error");
        assert_eq!(profile.count(), 2);

        let found = pprof::lookup("api.files").expect("it is registered");
        assert_eq!(found.count(), 2, "a clone is the same profile");
        let heap = pprof::lookup("heap").expect("it is built in");
        assert!(heap.add(1, 0).is_err(), "Go panics: only custom profiles take keys");

        let mut bytes = Vec::new();
        profile.write_to(&mut bytes, 0).expect("a vector takes everything");
        let written = Profile::read(&bytes);
        assert_eq!(written.sample_types(), [("api.files", "count")]);
        assert_eq!(written.samples().iter().map(|sample| sample.values[0]).sum::<i64>(), 2);
        assert!(written.samples().iter().any(|sample| sample.has("custom_profile_refuses")));
        let mut text = Vec::new();
        profile.write_to(&mut text, 1).expect("a vector takes everything");
        let text = String::from_utf8(text).expect("text is text");
        assert!(text.starts_with("api.files profile: total 2\n"), "{text}");
    });
}

/// A writer that takes some bytes, then fails.
struct Failing {
    left: usize,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.left == 0 {
            return Err(Error::new(ErrorKind::StorageFull, "the disk is full"));
        }
        let taken = bytes.len().min(self.left);
        self.left -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A writer that takes one byte at a time, and is interrupted before each.
struct Grudging {
    bytes: Vec<u8>,
    interrupted: bool,
}

impl Write for Grudging {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(ErrorKind::Interrupted.into());
        }
        self.bytes.extend(bytes.first());
        Ok(bytes.len().min(1))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn failing_writer() {
    child::isolated("failing_writer", || {
        rtprof::set_mem_profile_rate(1);
        let objects = some_objects();
        rtprof::set_mem_profile_rate(0);
        let custom = pprof::Profile::new("api.failing").expect("the name is free");
        custom.add(1, 0).expect("the key is new");
        let named = |name| pprof::lookup(name).expect("it is registered");
        for name in ["heap", "allocs", "api.failing"] {
            for debug in [0, 1] {
                let mut whole = Vec::new();
                named(name).write_to(&mut whole, debug).expect("a vector takes everything");
                // Well before the last byte: the profile contains the time, so its compressed length varies.
                for left in [0, 10, whole.len() * 9 / 10] {
                    let result = named(name).write_to(&mut Failing { left }, debug);
                    let error = result.expect_err("the writer failed");
                    assert_eq!(error.kind(), ErrorKind::StorageFull, "{name} {debug} {left}: {error}");
                }
                let mut grudging = Grudging { bytes: Vec::new(), interrupted: false };
                named(name).write_to(&mut grudging, debug).expect("short writes are no errors");
                if debug == 0 {
                    Profile::read(&grudging.bytes);
                }
            }
        }
        assert!(pprof::write_heap_profile(Failing { left: 5 }).is_err());
        for debug in [2, 7, u32::MAX] {
            named("heap").write_to(&mut Vec::new(), debug).expect("every level is some text");
        }
        let in_use = Profile::heap().totals_of("some_objects")[INUSE_OBJECTS];
        assert_eq!(in_use, 500, "after all those failures it is written whole");
        drop(objects);
    });
}

#[test]
fn limit_of_stacks_of_any_value() {
    child::isolated("limit_of_stacks_of_any_value", || {
        rtprof::set_mem_profile_rate(1);
        let mut previous = rtprof::set_max_stacks(0);
        assert!(previous > 0, "there is a default");
        let first = previous;
        previous = 0;
        for limit in [1, 2, 100, usize::MAX, first] {
            assert_eq!(rtprof::set_max_stacks(limit), previous, "the previous limit comes back");
            previous = limit;
            drop(some_objects());
            black_box(Profile::heap());
        }
    });
}

#[test]
fn labels_are_in_the_profile() {
    child::isolated("labels_are_in_the_profile", || {
        rtprof::set_mem_profile_rate(1);
        let objects = pprof::do_with(pprof::labels(&[("route", "/search"), ("tenant", "7")]), some_objects);
        let others = some_objects();
        rtprof::set_mem_profile_rate(0);
        let label = |name: &str, value: &str| -> i64 {
            let samples = Profile::heap().samples_of("some_objects").into_iter();
            let labelled = samples.filter(|sample| sample.labels.get(name).is_some_and(|text| text == value));
            labelled.map(|sample| sample.values[INUSE_OBJECTS]).sum()
        };
        assert_eq!(label("route", "/search"), 500, "what was allocated under the labels has them");
        assert_eq!(label("tenant", "7"), 500);
        let mut text = Vec::new();
        pprof::lookup("heap").expect("built in").write_to(&mut text, 1).expect("a Vec takes all");
        let text = String::from_utf8(text).expect("a text");
        let goes_for_go = r#"# labels: {"route":"/search", "tenant":"7"}"#;
        assert!(text.lines().any(|line| line == goes_for_go), "{text}");
        drop((objects, others));
    });
}
