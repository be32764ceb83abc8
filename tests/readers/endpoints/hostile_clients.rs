//! Many clients at once, a thousand in a long run, half of them slow or broken: the program goes on, and keeps nothing
//! that belonged to a client after the client has gone.

#[path = "../../../benches/src/storm.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is the benchmarks'")]
mod storm;

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use test_support::{address_space, child, descriptors, rounds, stress, until, web};

const TEST: &str = "a_storm_of_clients_leaves_nothing_behind";
/// In a long run; otherwise a quarter, which is many more than are answered at a time.
const CLIENTS: usize = 1000;
/// One for each of eight captures, and for eight other requests.
const WRITERS: usize = 16;
const ADDRESS: &str = "RTPROF_TEST_ADDRESS";

/// The allowed growth of resident memory: what an allocator keeps from many small answers.
const KEPT: u64 = 48 << 20;
/// The time until the last client is found to be gone (ten seconds without a byte) and the threads end (five without
/// work).
const CALM: Duration = Duration::from_secs(180);

#[test]
fn a_storm_of_clients_leaves_nothing_behind() {
    if child::is(TEST, "clients") {
        return clients();
    }
    child::isolated(TEST, || {
        rtprof::set_mem_profile_rate(1);
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(1);
        let held = many_stacks(rounds(10, 12), 0);
        rtprof::set_mem_profile_rate(512 << 10);
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        let address = server.local_addr();
        // A warm-up: names are found once, and an allocator keeps some memory for each thread that ever worked at one
        // time. This growth is not due to the storm.
        std::thread::scope(|scope| {
            for number in 0..WRITERS {
                scope.spawn(move || {
                    let path =
                        ["/", "/heap?debug=1", "/allocs", "/mutex", "/heap?format=flamegraph"][number % 5];
                    let status = web::get(address, &format!("/debug/pprof{path}")).status;
                    assert!([200, 503].contains(&status), "{path}: {status}");
                });
            }
        });
        let before = State::read();

        let (sent, tally) = mpsc::channel();
        std::thread::spawn(move || {
            let output = child::output(TEST, "clients", |command| {
                command.env(ADDRESS, address.to_string());
            });
            sent.send(output).expect("the test waits for it");
        });
        let mut most = before;
        let output = loop {
            match tally.recv_timeout(Duration::from_millis(100)) {
                Ok(output) => break output,
                Err(RecvTimeoutError::Timeout) => most = most.or(State::read()),
                Err(RecvTimeoutError::Disconnected) => panic!("the clients could not be started"),
            }
        };
        let text = child::report(&output);
        assert!(output.status.success(), "{text}");
        let tally = text.lines().find_map(|line| line.strip_prefix("tally ")).expect(&text);
        let numbers: Vec<usize> = tally.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [answered, _refused, _unanswered, wrong] = numbers[..] else { panic!("{tally}") };
        println!("answered, refused, unanswered, wrong: {tally}; before {before:?}, most {most:?}");
        assert!(answered > 0 && wrong == 0, "{tally}");
        assert!(most.servers <= before.servers + WRITERS, "{most:?}");

        let started = Instant::now();
        while State::read().threads > before.threads || State::read().descriptors > before.descriptors {
            assert!(started.elapsed() < CALM, "before {before:?}, most {most:?}, now {:?}", State::read());
            std::thread::sleep(Duration::from_millis(200));
        }
        let after = State::read();
        assert!(
            after.resident <= before.resident + KEPT,
            "before {before:?}, most {most:?}, after {after:?}"
        );
        assert_eq!(web::get(address, "/debug/pprof/heap").status, 200);
        server.shutdown();
        // The kernel lists a thread for a moment after its join.
        until("the server's threads are gone", || State::read().servers == 0);
        drop(held);
    });
}

/// Runs in the other process.
fn clients() {
    descriptors::allow(4096);
    let address: SocketAddr = std::env::var(ADDRESS).expect("set by the test").parse().expect("an address");
    let started = Instant::now();
    let mut tally = storm::Tally::default();
    // If other programs keep all cores busy, a storm may end before the server, which gives way, has answered a
    // request.
    while tally.answered == 0 && started.elapsed() < CALM {
        tally.add(
            storm::storm(address, rounds(CLIENTS / 4, CLIENTS), stress(), Duration::from_secs(12))
                .expect("a runtime"),
        );
    }
    println!("\ntally {} {} {} {}", tally.answered, tally.refused, tally.unanswered, tally.wrong);
}

/// Allocates objects on 2^depth stacks.
#[inline(never)]
fn many_stacks(depth: u32, path: usize) -> Vec<Vec<u8>> {
    if depth == 0 {
        return vec![vec![1; 100 + path % 7]];
    }
    let mut objects = left(depth - 1, path);
    objects.extend(right(depth - 1, path));
    objects
}

#[inline(never)]
fn left(depth: u32, path: usize) -> Vec<Vec<u8>> {
    std::hint::black_box(many_stacks(depth, path * 2))
}

#[inline(never)]
fn right(depth: u32, path: usize) -> Vec<Vec<u8>> {
    std::hint::black_box(many_stacks(depth, path * 2 + 1))
}

/// The resources of the process.
#[derive(Clone, Copy, Debug)]
struct State {
    threads: usize,
    /// The threads of the server.
    servers: usize,
    descriptors: usize,
    resident: u64,
}

impl State {
    fn read() -> Self {
        let names = fs::read_dir("/proc/self/task").expect("tests run on Linux").flatten();
        let names: Vec<String> =
            names.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect();
        Self {
            threads: names.len(),
            servers: names.iter().filter(|name| name.trim_end() == "rtprof-http").count(),
            descriptors: descriptors::open(),
            resident: address_space::resident(),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            threads: self.threads.max(other.threads),
            servers: self.servers.max(other.servers),
            descriptors: self.descriptors.max(other.descriptors),
            resident: self.resident.max(other.resident),
        }
    }
}
