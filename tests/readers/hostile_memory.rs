//! Exports at a limit of the address space: an error, or the whole profile, and never the end of the program.

use std::hint::black_box;
use std::io::{self, Read as _, Write};
use std::net::{SocketAddr, TcpStream};

use rtprof::http::Server;
use rtprof::pprof::{self, Symbolization};
use rtprof::trace;
use test_support::address_space::{limit_address_space, limited_to, mapped};
use test_support::{child, rounds, web};

const TEST: &str = "exports_at_a_limit";

/// The address space at the start in MiB, and what is left of it at an export.
type Limits = &'static [(&'static str, u64)];
const SOME: Limits = &[("all", 4), ("1000", 32)];
const ALL: Limits = &[
    ("all", 0),
    ("all", 1),
    ("all", 2),
    ("all", 4),
    ("all", 8),
    ("all", 16),
    ("all", 32),
    ("all", 64),
    ("1000", 0),
    ("1000", 1),
    ("1000", 2),
    ("1000", 4),
    ("1000", 8),
    ("1000", 16),
    ("1000", 32),
    ("1000", 64),
    ("1000", 128),
];

/// What a program may ask for; returns the number of bytes. It allocates nothing itself.
type Export = fn(SocketAddr) -> io::Result<usize>;

struct Count(usize);

impl Write for &mut Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counted(write: impl FnOnce(&mut Count) -> io::Result<()>) -> io::Result<usize> {
    let mut count = Count(0);
    write(&mut count)?;
    Ok(count.0)
}

fn written(name: &str, debug: u32) -> io::Result<usize> {
    counted(|count| pprof::lookup(name).expect("built in").write_to(count, debug))
}

fn fetched(address: SocketAddr, request: &[u8]) -> io::Result<usize> {
    let mut client = TcpStream::connect(address)?;
    client.write_all(request)?;
    let (mut head, mut buffer) = ([0; 12], [0; 4096]);
    client.read_exact(&mut head)?;
    let mut count = head.len();
    loop {
        match client.read(&mut buffer)? {
            0 => break,
            more => count += more,
        }
    }
    match &head[..] {
        b"HTTP/1.1 200" => Ok(count),
        b"HTTP/1.1 503" => Err(io::ErrorKind::OutOfMemory.into()),
        head => panic!("{:?}", str::from_utf8(head)),
    }
}

const EXPORTS: [(&str, Export); 11] = [
    ("heap", |_| written("heap", 0)),
    ("heap as text", |_| written("heap", 1)),
    ("allocs without names", |_| {
        let snapshot = pprof::lookup("allocs").expect("built in").snapshot()?;
        counted(|count| snapshot.write_proto(count, Symbolization::None))
    }),
    ("mutex", |_| written("mutex", 0)),
    ("goroutine", |_| written("goroutine", 0)),
    ("goroutines as text", |_| written("goroutine", 2)),
    ("tree", |_| {
        drop(pprof::lookup("heap").expect("built in").snapshot()?.call_tree(Symbolization::Full));
        Ok(0)
    }),
    ("cpu", |_| {
        let profile =
            pprof::CpuCapture::start(&pprof::CpuProfileOptions::default()).map_err(io::Error::other)?;
        let snapshot = profile.finish().map_err(io::Error::other)?;
        counted(|count| snapshot.write_to(count, 0))
    }),
    ("trace", |_| {
        trace::start(io::sink()).map_err(io::Error::other)?;
        trace::stop().map_err(io::Error::other)?;
        Ok(0)
    }),
    ("heap by HTTP", |address| {
        fetched(address, b"GET /debug/pprof/heap HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    }),
    ("page by HTTP", |address| {
        fetched(address, b"GET /debug/pprof/heap?format=flamegraph HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    }),
];

#[inline(never)]
fn many_stacks(depth: u32, live: &mut Vec<Box<[u8]>>) {
    if depth == 0 {
        return live.push(black_box(vec![1; 100].into()));
    }
    many_stacks(depth - 1, live);
    black_box(());
    many_stacks(depth - 1, live);
    black_box(());
}

/// The limit is set when the program runs; or at its start, so that the profiler has reserved little for itself, and then the
/// program takes nearly all that is left.
#[test]
fn exports_at_a_limit() {
    for &(begin, left) in rounds(SOME, ALL) {
        for (name, export) in EXPORTS {
            let scenario = format!("{name}: {left} MiB of {begin}");
            if child::is(TEST, &scenario) {
                rtprof::set_mem_profile_rate(1);
                let mut live = Vec::new();
                many_stacks(12, &mut live);
                let server: Server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
                let address = server.local_addr();
                // Its threads have begun.
                assert_eq!(web::get(address, "/debug/pprof/symbol").status, 200);
                let before = limit_address_space(mapped() + (left << 20));
                let got = export(address);
                limit_address_space(before);
                println!("\ngot {got:?}");
                // All is well with memory again.
                export(address).expect("there is memory");
                drop(live);
                println!("all is well");
            } else if !child::any() {
                let output = match begin {
                    "all" => child::output(TEST, &scenario, |_| {}),
                    some => child::output(TEST, &scenario, limited_to(some.parse().expect("a number"))),
                };
                let report = child::report(&output);
                assert!(output.status.success() && report.contains("all is well"), "{scenario}: {report}");
                println!(
                    "{scenario}: {}",
                    report.lines().find(|line| line.contains("got ")).unwrap_or_default()
                );
            }
        }
    }
}
