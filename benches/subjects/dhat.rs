//! dhat with its profiler running: every allocation recorded with its stack.

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

fn main() {
    // Testing mode only keeps dhat from writing its file at the end; it records the same.
    let _profiler = dhat::Profiler::builder().testing().build();
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
