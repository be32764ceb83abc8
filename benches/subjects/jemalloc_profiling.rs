//! jemalloc with its own heap profiler on, at rtprof's mean distance of samples.

use tikv_jemalloc_ctl::raw;

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc looks for a symbol of this name when it starts. 2^19 bytes are 512 KiB.
// SAFETY: the name is jemalloc's for this purpose, and the type is the one it declares: a pointer to a C
// string.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONF: &std::ffi::c_char = {
    static TEXT: &[u8] = b"prof:true,prof_active:true,lg_prof_sample:19\0";
    // SAFETY: TEXT is a static that ends in NUL, and c_char has the layout of u8.
    unsafe { &*TEXT.as_ptr().cast() }
};

/// Asserts that the profiler is on. A profiler that was silently left out or off would make jemalloc look better than
/// it is.
fn assert_profiling() {
    // SAFETY: the types are those that jemalloc's manual gives for these names.
    let (compiled, on, active, distance) = unsafe {
        (
            raw::read::<bool>(b"config.prof\0").expect("config.prof"),
            raw::read::<bool>(b"opt.prof\0").expect("opt.prof"),
            raw::read::<bool>(b"prof.active\0").expect("prof.active"),
            raw::read::<usize>(b"prof.lg_sample\0").expect("prof.lg_sample"),
        )
    };
    assert!(compiled && on && active, "jemalloc's profiler: compiled {compiled}, on {on}, active {active}");
    assert_eq!(distance, 19, "jemalloc samples at 2^{distance} bytes");
}

fn main() {
    assert_profiling();
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
