//! An export's memory goes back to the kernel, and works like any other memory meanwhile.

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rtprof::pprof::{lookup, profiles};
use test_support::child;
use test_support::random::Random;

const MIB: usize = 1 << 20;

/// Returns a line of `/proc/self/status`, in bytes.
fn status(line: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("it is there on Linux");
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().strip_suffix(" kB"));
    found.expect("it has the line").trim().parse::<usize>().expect("it is a number") << 10
}

#[inline(never)]
fn keeps() -> Vec<Vec<u8>> {
    black_box((0..100).map(|size| vec![1; size + 1]).collect())
}

#[test]
fn it_goes_back_after_exports() {
    child::isolated("it_goes_back_after_exports", || {
        rtprof::set_mem_profile_rate(1);
        let kept = keeps();
        rtprof::set_mem_profile_rate(512 * 1024);
        // Memory that stays is measured without the pages of the binary's code that the export has run: the kernel may
        // drop these, and their number depends on the build.
        let (before, resident) = (status("RssAnon:"), status("VmRSS:"));
        // Each export runs on a new thread: an allocator with arenas makes an arena for each.
        for _ in 0..4 {
            let export = || {
                for profile in profiles() {
                    profile.write_to(io::sink(), 0).expect("a sink takes all");
                    profile.write_to(io::sink(), 1).expect("a sink takes all");
                }
            };
            thread::spawn(export).join().expect("it ends well");
        }
        let (peak, after) = (status("VmHWM:"), status("RssAnon:"));
        black_box(kept);
        // Debug information takes some ten megabytes at least; otherwise this would test nothing.
        assert!(peak > resident + 8 * MIB, "{resident} bytes, then {peak} at the peak");
        assert!(
            after < before + 4 * MIB,
            "{before} bytes, then {after}; {resident}, then {peak} at the peak"
        );
    });
}

/// Sums all bytes, in whatever pieces they arrive.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// The program's writer, which allocates, passes memory to other threads that free it, and writes a profile itself.
struct Busy {
    seen: Vec<u8>,
    others: Vec<Sender<Vec<u8>>>,
    random: Random,
    depth: usize,
}

impl Write for Busy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.seen.extend_from_slice(bytes);
        let to = self.random.below(self.others.len());
        self.others[to].send(bytes.to_vec()).expect("it listens");
        if self.depth > 0 {
            self.depth -= 1;
            let heap = lookup("heap").expect("it is there");
            heap.write_to(io::sink(), self.depth as u32 % 2)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Snapshots and texts are made on one thread, changed on another and freed on a third, while others do the same.
#[test]
fn it_is_memory_like_any_other() {
    child::isolated("it_is_memory_like_any_other", || {
        rtprof::set_mem_profile_rate(512);
        let (others, inboxes): (Vec<_>, Vec<Receiver<Vec<u8>>>) = (0..3).map(|_| channel()).unzip();
        let receivers: Vec<_> = inboxes
            .into_iter()
            .map(|inbox| thread::spawn(move || inbox.iter().map(|bytes| sum(&bytes)).sum::<u64>()))
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let others = others.clone();
                thread::spawn(move || {
                    let mut busy = Busy { seen: Vec::new(), others, random: Random::new(seed), depth: 6 };
                    for debug in [0, 1, 0, 1] {
                        let heap = lookup("heap").expect("it is there");
                        let snapshot = heap.snapshot().expect("nothing is forked");
                        // Freed by a thread that has never exported.
                        thread::spawn(move || drop(black_box(snapshot))).join().expect("it ends well");
                        heap.write_to(&mut busy, debug).expect("it takes all");
                    }
                    sum(&busy.seen)
                })
            })
            .collect();
        drop(others);
        let written: u64 = writers.into_iter().map(|thread| thread.join().expect("it ends well")).sum();
        let received: u64 = receivers.into_iter().map(|thread| thread.join().expect("it ends well")).sum();
        assert_eq!(written, received, "every piece was whole");
        assert!(written > 10_000, "{written}");
    });
}
