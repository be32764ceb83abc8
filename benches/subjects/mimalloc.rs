//! mimalloc.

#[global_allocator]
static ALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
