//! stats_alloc over System: exact totals in global atomics, no stacks.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOC: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
