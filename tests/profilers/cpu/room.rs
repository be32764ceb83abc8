//! The stack space that the signal handler needs: of the thread's stack or its alternate stack, and of the handler's
//! own stacks.

use std::hint::black_box;
use std::io;
use std::mem::zeroed;
use std::panic::{catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rtprof::pprof::CpuSource;
use rtprof::trace;
use rtprof_runtime::stack::most_used_of_spare;
use test_support::processor::used;
use test_support::{child, workload};

use super::work::{by, profiled, samples_of};

/// The least size of the stack that std gives threads for handlers (`SIGSTKSZ`). The kernel's own frame lies on it too.
const ALTERNATE: usize = 8 << 10;

/// The processor time that is sampled in each thread: thousands of samples, over all the work below.
const TIME: Duration = Duration::from_millis(500);

// Called from the C library, which has no frame pointers.
extern "C" fn compares(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
    // SAFETY: `qsort` passes pointers to two elements of the sorted array, which are `u64`.
    let (a, b) = unsafe { (*a.cast::<u64>(), *b.cast::<u64>()) };
    black_box(a).cmp(&black_box(b)) as libc::c_int
}

#[inline(never)]
fn sorts_in_c() {
    let mut numbers: Vec<u64> = (0..300).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    // SAFETY: the vector has this many elements of this size.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), size_of::<u64>(), Some(compares)) };
}

/// Recurses deeper than the stacks that are kept.
#[inline(never)]
fn deep(depth: u32, leaf: &dyn Fn()) {
    match depth {
        0 => leaf(),
        depth => deep(depth - 1, leaf),
    }
    black_box(depth);
}

/// Does work that calls none of the profiler's hooks, so that only samples find it.
#[inline(never)]
fn unheard() {
    sorts_in_c();
    assert!(catch_unwind(|| deep(20, &|| resume_unwind(Box::new(1)))).is_err());
    deep(200, &sorts_in_c);
    black_box(format!("{:?} {}", Instant::now(), 1.5_f64.sin()));
}

#[inline(never)]
fn everything() {
    workload::every_kind();
    unheard();
    trace::log("room", "enough");
}

fn for_a_while(work: fn()) {
    let started = used();
    while used() - started < TIME {
        work();
    }
}

/// The handler's stack is as large as the module that makes it says. A debug build needs much more of it.
#[test]
fn the_handlers_stack_is_large_enough() {
    child::isolated("the_handlers_stack_is_large_enough", || {
        rtprof::set_stack_mode(rtprof::StackMode::Unwind);
        trace::start(io::sink()).unwrap();
        let options = rtprof::pprof::CpuProfileOptions { thread_labels: true, ..by(CpuSource::Perf, 10_000) };
        let ((), profile, stats) = profiled(options, || {
            rtprof::thread::spawn(|| for_a_while(everything)).join().unwrap();
            std::thread::spawn(|| for_a_while(unheard)).join().unwrap();
        });
        trace::stop().unwrap();
        let (used, size) = most_used_of_spare().expect("they were used");
        println!("{used} of {size} bytes in {} samples", stats.samples);
        // Deep stacks are cut off before these functions, and the second thread may have been found late.
        for (function, least) in [("room::everything", 1000), ("room::unheard", 1)] {
            let found = samples_of(&profile, function);
            assert!(found >= least, "{function}: {found}");
        }
        assert!(used > 1000, "the handler works there");
        assert!(used <= size - size / 4, "{used} of {size} bytes");
    });
}

/// So the handler may run on the 8 KiB that std gives threads for handlers.
#[test]
fn the_handler_needs_little_of_an_alternate_stack() {
    const PAINT: u8 = 0xa5;
    fn on_painted_stack(work: fn()) -> usize {
        let mut stack = vec![PAINT; 1 << 20];
        // SAFETY: the stack lives until the thread's old alternate stack is restored.
        unsafe {
            let ours = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
            let mut before: libc::stack_t = zeroed();
            assert_eq!(libc::sigaltstack(&raw const ours, &raw mut before), 0);
            for_a_while(work);
            assert_eq!(libc::sigaltstack(&raw const before, null_mut()), 0);
        }
        stack.len() - black_box(&stack).iter().take_while(|&&byte| byte == PAINT).count()
    }
    child::isolated("the_handler_needs_little_of_an_alternate_stack", || {
        rtprof::set_stack_mode(rtprof::StackMode::Unwind);
        trace::start(io::sink()).unwrap();
        let work = || std::thread::spawn(|| on_painted_stack(everything)).join().unwrap();
        let (used, profile, _) = profiled(by(CpuSource::Perf, 10_000), work);
        trace::stop().unwrap();
        println!("{used} bytes of an alternate stack");
        let found = samples_of(&profile, "room::everything");
        assert!(found > 1000, "{found}");
        assert!(used > 500, "the handler begins there");
        assert!(used <= ALTERNATE - ALTERNATE / 8, "{used} of {ALTERNATE} bytes");
    });
}
