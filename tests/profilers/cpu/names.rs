//! Names that are found while a profile is taken.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;

use rtprof::pprof::{CpuCapture, CpuProfileOptions, Symbolization};
use test_support::processor::burn;
use test_support::profile::Profile;
use test_support::{PATIENCE, child};

#[inline(never)]
fn works() {
    black_box(burn(black_box(Duration::from_millis(200))));
}

/// A search finds the names of what was sampled before it began, so that the profile has them without another.
#[test]
fn names_are_found_while_a_profile_is_taken() {
    child::isolated("names_are_found_while_a_profile_is_taken", || {
        let start = || {
            let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
            let capture = CpuCapture::start(&options).expect("no other profile is taken");
            works();
            capture
        };
        let named = |capture: CpuCapture| {
            let mut bytes = Vec::new();
            let snapshot = capture.finish().expect("it was started here");
            snapshot.write_proto(&mut bytes, Symbolization::Known).expect("memory accepts it");
            Profile::read(&bytes).samples().iter().filter(|sample| sample.has("::works")).count()
        };
        assert_eq!(named(start()), 0, "nothing was looked up yet");
        let capture = start();
        let (found, finds) = mpsc::channel();
        let _search = capture.find_names(move || _ = found.send(()));
        finds.recv_timeout(PATIENCE).expect("the search ends");
        assert!(named(capture) > 0);
    });
}
