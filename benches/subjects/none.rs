//! The baseline: no `#[global_allocator]`, so std's default path to malloc.

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
