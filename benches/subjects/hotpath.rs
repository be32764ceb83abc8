//! hotpath over System: exact totals of each thread and of each measured function, of which there is none here; no
//! stacks.

use hotpath::{CountingAllocator, Format, HotpathGuardBuilder};

#[global_allocator]
static ALLOC: CountingAllocator = CountingAllocator::new();

fn main() {
    // The report at the end would be read as an answer.
    let _guard = HotpathGuardBuilder::new("main").format(Format::None).build();
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
