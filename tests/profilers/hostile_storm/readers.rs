//! Those who ask: recorders, CPU profiles, exports and clients, all the time. Each function is one round.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{sleep, spawn};
use std::time::Duration;

use rtprof::pprof::{self, CpuProfileOptions};
use rtprof::trace::{self, FlightRecorder, Options, TraceError};
use rtprof::{GoroutineRecord, goroutine_profile};
use test_support::PATIENCE;
use test_support::profile::Profile;
use test_support::recording::{self, Kept};

use super::LASTING;

/// Takes its time, as a client at the end of a slow line.
struct Slow(Vec<u8>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sleep(Duration::from_millis(5));
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Windows are written while their recorder is stopped, and a trace and another recorder begin and end.
pub(super) fn records() {
    let options = || Options { max_bytes: 64 << 10, drain_timeout: PATIENCE, ..Options::default() };
    let flight = FlightRecorder::new(options());
    flight.start().expect("no other recorder goes on");
    sleep(Duration::from_millis(5));
    let window = {
        let flight = flight.clone();
        move || {
            let mut to = Slow(Vec::new());
            flight.write_to(&mut to).map(|_| to.0)
        }
    };
    let windows = [spawn(window.clone()), spawn(window)];
    sleep(Duration::from_millis(5));
    flight.stop();
    let kept = Kept::default();
    trace::start_with(kept.clone(), options()).expect("nothing else is recorded");
    sleep(Duration::from_millis(5));
    trace::stop().expect("a vector takes everything");
    recording::parse(&kept.bytes(), "trace");
    let next = FlightRecorder::new(options());
    next.start().expect("no other recorder goes on");
    next.stop();
    for window in windows {
        match window.join().expect("it ends well") {
            Ok(bytes) => drop(recording::parse(&bytes, "window")),
            Err(TraceError::FlightDisabled) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Two do not sample at a time.
static SAMPLED: Mutex<()> = Mutex::new(());

pub(super) fn samples() {
    let _one = SAMPLED.lock().expect("a failure ends the test");
    let kept = Kept::default();
    let options = CpuProfileOptions { hz: 1000, ..CpuProfileOptions::default() };
    pprof::start_cpu_profile_with(kept.clone(), options).expect("no other profile goes on");
    sleep(Duration::from_millis(50));
    pprof::stop_cpu_profile().expect("it goes on");
    Profile::read(&kept.bytes());
}

fn named(all: &[GoroutineRecord], name: &str) -> usize {
    all.iter().filter(|goroutine| goroutine.name == name).count()
}

pub(super) fn is_listed(name: &str) -> bool {
    named(&goroutine_profile(), name) == 1
}

pub(super) fn asks() {
    let all = goroutine_profile();
    assert_eq!(named(&all, LASTING), 1, "{all:#?}");
}

/// Returns the next number of a sequence.
fn next(of: &AtomicUsize) -> usize {
    of.fetch_add(1, Relaxed)
}

/// Writes one profile in one form, each in its turn.
pub(super) fn writes() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let (profiles, turn) = (pprof::profiles(), next(&TURN));
    let (profile, debug) = (&profiles[turn / 3 % profiles.len()], (turn % 3) as u32);
    let mut bytes = Vec::new();
    profile.write_to(&mut bytes, debug).expect("a vector takes everything");
    if debug == 0 {
        Profile::read(&bytes);
    } else {
        assert!(std::str::from_utf8(&bytes).is_ok_and(|text| text.ends_with('\n')), "{}", profile.name());
    }
}

#[cfg(feature = "http")]
static ADDRESS: std::sync::OnceLock<std::net::SocketAddr> = std::sync::OnceLock::new();

/// Answers clients until the process ends.
pub(super) fn serve() {
    #[cfg(feature = "http")]
    {
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        ADDRESS.set(server.local_addr()).expect("once");
        std::mem::forget(server);
    }
}

#[cfg(not(feature = "http"))]
pub(super) fn requests() {
    // There is no server in this build.
    writes();
}

/// Clients that are patient, that half-close, that go away before the answer or in its middle, and that stall in it.
#[cfg(feature = "http")]
pub(super) fn requests() {
    use std::thread::scope;

    use test_support::web::{Connection, get, request};

    const TARGETS: [&str; 8] = [
        "",
        "heap?debug=1",
        "allocs",
        "block?debug=1",
        "mutex",
        "threadcreate?debug=1",
        "goroutine?debug=1",
        "goroutine?debug=2",
    ];
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let address = *ADDRESS.get().expect("the server was started");
    let target = format!("/debug/pprof/{}", TARGETS[next(&TURN) % TARGETS.len()]);
    let open = || {
        let mut connection = Connection::open(address).expect("the server listens");
        connection.send(request(address, "GET", &target, &[], "")).expect("the server reads");
        connection
    };
    drop(open());
    scope(|scope| {
        scope.spawn(|| {
            let mut half_closed = open();
            half_closed.end_sending().expect("the server reads");
            let answer = half_closed.receive(false).expect("there is an answer");
            assert!([200, 503].contains(&answer.status), "{target}: {}", answer.line);
        });
        scope.spawn(|| {
            let mut stalls = open();
            stalls.head().expect("there is an answer");
            sleep(Duration::from_millis(20));
        });
        let answer = get(address, &target);
        assert!([200, 503].contains(&answer.status), "{target}: {}", answer.line);
        if answer.status == 200 && target.ends_with("debug=2") {
            assert!(answer.text().contains(LASTING), "{}", answer.text());
        }
    });
}
