//! Writers that fail, panic, or block for ever: the stop of the trace returns the error, and the next trace works.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rtprof::trace::{self, Options, TraceError};
use test_support::child;
use test_support::recording::assert_works;

/// A writer that takes some bytes and then calls a function for its result.
struct Failing<F>(usize, F);

impl<F: FnMut() -> io::Result<usize>> Write for Failing<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return (self.1)();
        }
        let len = bytes.len().min(self.0);
        self.0 -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the writer's error, whose text must be a part of the trace error's.
#[track_caller]
fn write_error(stopped: Result<trace::Stats, TraceError>) -> io::Error {
    match stopped {
        Err(TraceError::Write(error, stats)) => {
            let text = TraceError::Write(io::Error::other(error.to_string()), stats).to_string();
            assert!(text.contains(&error.to_string()), "{text}");
            error
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_writer_that_fails() {
    child::isolated("a_writer_that_fails", || {
        for takes in [0, 10, 100] {
            let fail = || Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
            trace::start(Failing(takes, fail)).expect("no other trace goes on");
            trace::log("not", "written");
            let error = write_error(trace::stop());
            assert_eq!(
                (error.kind(), error.to_string()),
                (io::ErrorKind::StorageFull, "the disk is full".into())
            );
            assert_works();
        }
        // The writer takes no more bytes, and reports no error.
        trace::start(Failing(20, || Ok(0))).expect("no other trace goes on");
        assert_eq!(write_error(trace::stop()).kind(), io::ErrorKind::WriteZero);
        assert_works();
    });
}

/// Recording ends as soon as the writer fails; the stop returns the error.
#[test]
fn a_writer_that_fails_long_before() {
    child::isolated("a_writer_that_fails_long_before", || {
        trace::start(Failing(0, || Err(io::ErrorKind::BrokenPipe.into()))).expect("no other trace goes on");
        let started = Instant::now();
        while trace::is_enabled() {
            assert!(started.elapsed() < Duration::from_secs(60), "it goes on for nobody");
            std::thread::sleep(Duration::from_millis(1));
        }
        let second = trace::start(io::sink());
        assert!(matches!(second, Err(TraceError::AlreadyStarted)), "not before it was stopped: {second:?}");
        assert_eq!(write_error(trace::stop()).kind(), io::ErrorKind::BrokenPipe);
        assert_works();
    });
}

#[test]
fn a_writer_that_panics() {
    child::isolated("a_writer_that_panics", || {
        for takes in [0, 50] {
            trace::start(Failing(takes, || panic!("on purpose"))).expect("no other trace goes on");
            trace::log("not", "written");
            let error = write_error(trace::stop());
            assert!(error.to_string().contains("panicked"), "{error}");
            assert_works();
        }
    });
}

/// A writer that panics when it is dropped: everything was written before.
#[test]
fn a_writer_that_panics_at_its_end() {
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    child::isolated("a_writer_that_panics_at_its_end", || {
        let dropped = Dropped;
        let take = move || {
            let _ = &dropped;
            unreachable!("it takes everything before")
        };
        trace::start(Failing(usize::MAX, take)).expect("no other trace goes on");
        let stats = trace::stop().expect("everything was written");
        assert!(stats.bytes > 0, "{stats:?}");
        assert_works();
    });
}

/// A writer that blocks in its first write until it is released, and signals its drop.
struct Blocking {
    released: Receiver<()>,
    _dropped: Sender<()>,
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.released.recv().ok();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that blocks for ever delays the stop by `drain_timeout`, and no trace can be started as long as that writer
/// uses the recorder.
#[test]
fn a_writer_that_blocks() {
    child::isolated("a_writer_that_blocks", || {
        let (release, released) = channel();
        let (dropped, is_dropped) = channel();
        let options = Options { drain_timeout: Duration::from_millis(150), ..Options::default() };
        trace::start_with(Blocking { released, _dropped: dropped }, options).expect("no other trace goes on");
        trace::log("not", "written");
        let started = Instant::now();
        let stopped = trace::stop();
        let waited = started.elapsed();
        assert!(matches!(stopped, Err(TraceError::WriterStalled(_))), "{stopped:?}");
        assert!((Duration::from_millis(150)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
        assert!(!trace::is_enabled(), "recording has ended all the same");

        for _ in 0..3 {
            let busy = trace::start(io::sink());
            assert!(matches!(busy, Err(TraceError::WriterBusy)), "{busy:?}");
            assert!(matches!(trace::stop(), Err(TraceError::NotStarted)));
        }
        // Annotations made meanwhile belong to no trace.
        trace::with_region("nobody's", || trace::log("nobody's", ""));
        drop(release);
        assert!(is_dropped.recv().is_err(), "the writer is dropped at last");
        let started = Instant::now();
        while let Err(error) = trace::start(io::sink()) {
            assert!(matches!(error, TraceError::WriterBusy), "{error}");
            assert!(started.elapsed() < Duration::from_secs(60), "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        trace::stop().expect("a sink takes everything");
        assert_works();
    });
}
