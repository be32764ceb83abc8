//! dial9 over System at its default rate: sampled allocations with their stacks, and their frees.

use dial9::memory::{Dial9Allocator, MemoryProfiler, MemoryProfilingConfig};
use dial9::{MemoryBuffer, recorder};

#[global_allocator]
static ALLOC: Dial9Allocator = Dial9Allocator::system();

/// The bytes of events that are kept. The oldest are dropped.
const BUFFER: u64 = 16 << 20;

fn main() {
    let recorder = recorder(MemoryBuffer::new(BUFFER).expect("a buffer")).build();
    // A profile of what is in use needs the frees too. By default they are not tracked.
    let config = MemoryProfilingConfig::builder().track_liveset(true).build();
    let _guard = MemoryProfiler::from_config(config)
        .install(recorder.handle().clone())
        .expect("it runs in builds with frame pointers");
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
