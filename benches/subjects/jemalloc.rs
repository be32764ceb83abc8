//! jemalloc, compiled without its profiler.

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
