//! Failures are reported, and leave nothing behind.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use rtprof::pprof::{self, CpuCapture, CpuProfileError, CpuProfileOptions, CpuSource, Symbolization};
use test_support::processor::burn;
use test_support::signals::disposition;
use test_support::{child, descriptors, rounds, until};

use super::work::{Shared, by, profiled, sum};

#[test]
fn rates_that_cannot_be_are_refused() {
    child::isolated("rates_that_cannot_be_are_refused", || {
        let before = (descriptors::open(), disposition(libc::SIGURG));
        for hz in [0, 10_001, 1_000_000, u32::MAX] {
            let options = CpuProfileOptions { hz, ..CpuProfileOptions::default() };
            let error = pprof::start_cpu_profile_with(io::sink(), options).unwrap_err();
            assert!(matches!(error, CpuProfileError::InvalidRate(refused) if refused == hz), "{error}");
            assert!(error.to_string().contains("choose an hz from 1 to 10000"), "{error}");
        }
        assert_eq!((descriptors::open(), disposition(libc::SIGURG)), before);
        for hz in [1, 10_000] {
            let ((), profile, _) = profiled(by(CpuSource::Auto, hz), || ());
            assert_eq!(profile.period, 1_000_000_000 / i64::from(hz));
        }
    });
}

#[test]
fn one_at_a_time_and_none_without_a_start() {
    child::isolated("one_at_a_time_and_none_without_a_start", || {
        let is_none = |error: CpuProfileError| matches!(error, CpuProfileError::NotStarted);
        assert!(pprof::stop_cpu_profile().is_err_and(is_none));
        pprof::start_cpu_profile(io::sink()).unwrap();
        let error = pprof::start_cpu_profile(io::sink()).unwrap_err();
        assert!(error.to_string().starts_with("cpu profiling already in use"), "{error}");
        let second = CpuCapture::start(&CpuProfileOptions::default());
        assert!(matches!(second, Err(CpuProfileError::AlreadyStarted)));
        pprof::stop_cpu_profile().unwrap();
        assert!(pprof::stop_cpu_profile().is_err_and(is_none));

        // A capture ends when it is dropped.
        let capture = CpuCapture::start(&CpuProfileOptions::default()).unwrap();
        assert!(matches!(pprof::start_cpu_profile(io::sink()), Err(CpuProfileError::AlreadyStarted)));
        assert!(pprof::stop_cpu_profile().is_err_and(is_none), "that one is another's");
        drop(capture);
        pprof::start_cpu_profile(io::sink()).unwrap();
        pprof::stop_cpu_profile().unwrap();
    });
}

#[test]
fn nothing_is_left_behind() {
    for source in [CpuSource::Perf, CpuSource::Timers] {
        child::isolated_as("nothing_is_left_behind", &format!("{source:?}"), || {
            let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
            let round = || drop(profiled(by(source, 1000), || burn(Duration::from_millis(5))));
            round();
            until("its thread has ended", || threads() <= 2);
            let before = (descriptors::open(), disposition(libc::SIGURG));
            (0..rounds(8, 20)).for_each(|_| round());
            assert_eq!((descriptors::open(), disposition(libc::SIGURG)), before);
            until("its threads have ended", || threads() <= 2);
            assert_eq!(before.1, libc::SIG_DFL);
        });
    }
}

/// A writer that fails with the given result.
struct Failing(fn() -> io::Result<usize>);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        (self.0)()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_is_told_of_and_harms_nothing() {
    child::isolated("a_writer_that_fails_is_told_of_and_harms_nothing", || {
        let failing: [fn() -> io::Result<usize>; 2] =
            [|| Err(io::Error::other("the disk is full")), || panic!("on purpose")];
        for (fails, says) in failing.into_iter().zip(["the disk is full", "it panicked"]) {
            pprof::start_cpu_profile(Failing(fails)).unwrap();
            let error = pprof::stop_cpu_profile().unwrap_err();
            assert!(
                matches!(error, CpuProfileError::Write(_)) && error.to_string().contains(says),
                "{error}"
            );
        }
        profiled(CpuProfileOptions::default(), || ());
    });
}

/// A writer that waits until the other end of its channel lets it go on.
struct Stalling(mpsc::Receiver<()>, Shared);

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().ok();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_stalls_is_left_behind() {
    child::isolated("a_writer_that_stalls_is_left_behind", || {
        let (go_on, waits) = mpsc::channel();
        let bytes = Shared::default();
        let options =
            CpuProfileOptions { drain_timeout: Duration::from_millis(1), ..CpuProfileOptions::default() };
        pprof::start_cpu_profile_with(Stalling(waits, bytes.clone()), options).unwrap();
        let error = pprof::stop_cpu_profile().unwrap_err();
        assert!(matches!(error, CpuProfileError::WriterStalled), "{error}");
        let error = pprof::start_cpu_profile(io::sink()).unwrap_err();
        assert!(matches!(error, CpuProfileError::WriterBusy), "{error}");
        // Another capture can be taken meanwhile.
        CpuCapture::start(&CpuProfileOptions::default()).unwrap().finish().unwrap();
        drop(go_on);
        until("it has returned", || pprof::start_cpu_profile(io::sink()).is_ok());
        pprof::stop_cpu_profile().unwrap();
        bytes.profile();
    });
}

#[test]
fn a_snapshot_has_every_form() {
    child::isolated("a_snapshot_has_every_form", || {
        let capture = CpuCapture::start(&by(CpuSource::Auto, 1000)).unwrap();
        assert!(capture.sampled_by().to_string().contains("perf_event_open"));
        burn(Duration::from_millis(50));
        let snapshot = capture.finish().unwrap();
        let written = |write: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
            let mut bytes = Vec::new();
            write(&mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let text = written(&|w| snapshot.write_text(w, Symbolization::Full));
        assert!(
            text.starts_with("cpu profile: total ") && text.contains("a_snapshot_has_every_form"),
            "{text}"
        );
        let collapsed = written(&|w| snapshot.write_collapsed(w, 1, Symbolization::Full));
        let line = collapsed.lines().find(|line| line.contains("a_snapshot_has_every_form")).expect("a line");
        let nanos: i64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(nanos > 0 && nanos % 1_000_000 == 0, "{line}");
        let tree = snapshot.call_tree(Symbolization::Full);
        let mut proto = Vec::new();
        snapshot.write_proto(&mut proto, Symbolization::Full).unwrap();
        let (samples, cpu) = sum(&test_support::profile::Profile::read(&proto).samples());
        let total = |at: usize| tree.values.iter().skip(at).step_by(2).sum::<i64>();
        assert_eq!((total(0), total(1)), (samples, cpu));
        assert!(samples >= 45, "{samples}");
    });
}
