//! The part for writing a heap profile with many records.
//!
//! Requests: `fill COUNT FRAMES` (keeps one sampled object alive on each of COUNT distinct stacks; answers the number
//! of their records and the frames of one of them), `write` (answers
//! milliseconds, those of processor time, and bytes), `samples`, `resident`.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use rtprof_benches::descent::{depth_for, on_distinct_stacks};
use rtprof_benches::live_heap;
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::serve::serve;
use rtprof_runtime::counters::{self, CountedProfile};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Size of the objects kept alive; odd, so that their records can be told from any others.
const OBJECT: usize = 61;
/// Size of the object by which the depth is found; small enough for the pool, as the others are.
const PROBE: usize = 2001;

fn main() {
    // Only the fill is sampled.
    rtprof::set_mem_profile_rate(0);
    serve(|request| match request.word() {
        "fill" => fill(request.number(), request.number()),
        "write" => write(),
        "samples" => {
            let taken: i64 = rtprof::mem_profile(true).iter().map(|record| record.alloc_objects).sum();
            vec![taken as f64, counters::total(CountedProfile::Heap) as f64]
        }
        "resident" => vec![live_heap::resident().expect("benchmarks run on Linux") as f64],
        other => panic!("unknown request {other}"),
    });
}

fn fill(count: usize, frames: usize) -> Vec<f64> {
    sampled(1, 1, PROBE);
    let depth = depth_for(frames, frames_of(PROBE).0);
    sampled(count, depth, OBJECT);
    // The rate of production from here on, at which an export's own allocations are sampled now and then.
    rtprof::set_mem_profile_rate(512 * 1024);
    let (frames, records) = frames_of(OBJECT);
    vec![records as f64, frames as f64]
}

/// Allocates one object of `size` bytes on each of `count` stacks; all are sampled and kept.
#[inline(never)]
fn sampled(count: usize, depth: usize, size: usize) {
    let layout = Layout::from_size_align(size, 1).expect("a small size");
    let before = rtprof::set_mem_profile_rate(1);
    on_distinct_stacks(count, depth, &mut || {
        // SAFETY: `size` is not 0.
        let object = black_box(unsafe { alloc(layout) });
        if object.is_null() {
            handle_alloc_error(layout);
        }
    });
    rtprof::set_mem_profile_rate(before);
}

/// Returns the depth of the stacks of objects of this size, and the number of their records.
fn frames_of(size: usize) -> (usize, usize) {
    let records = rtprof::mem_profile(true);
    let of_size = |record: &&rtprof::MemProfileRecord| {
        record.alloc_objects > 0 && record.alloc_bytes == record.alloc_objects * size as i64
    };
    let first = records.iter().find(of_size).expect("at rate 1 the objects were sampled");
    (first.stack().len(), records.iter().filter(of_size).count())
}

fn write() -> Vec<f64> {
    let mut sink = Counted(0);
    let (start, watch) = (Instant::now(), Stopwatch::start());
    rtprof::pprof::write_heap_profile(&mut sink).expect("counting bytes does not fail");
    let millis = start.elapsed().as_secs_f64() * 1e3;
    vec![millis, watch.elapsed().as_secs_f64() * 1e3, sink.0 as f64]
}

/// Counts bytes and drops them: the profile is measured, not a disk.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += black_box(bytes).len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
