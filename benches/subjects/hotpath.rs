//! hotpath over System: exact totals of each thread and of each measured function, which is only `main` here; no stacks.

use hotpath::{CountingAllocator, Format, HotpathGuardBuilder};

#[global_allocator]
static ALLOC: CountingAllocator = CountingAllocator::new();

fn main() {
    // Without the report at the end.
    let _guard = HotpathGuardBuilder::new("main").format(Format::None).build();
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
