//! The visible part of stacks that waited, made others wait, or created threads.

use super::super::{Class, Cut, Machinery};
use super::{cut_of, waiting};

#[test]
fn a_wait_shows_who_asked_for_the_lock() {
    let new_scheme: &[&[&str]] = &[
        &["rtprof_runtime::stack::capture", "rtprof_profiler::contention::record"],
        &["rtprof_profiler::contention::sample_block"],
        &["<rtprof_hooks::inner::wait::Wait>::end", "<rtprof_hooks::inner::mutex::QueueMutex>::lock_slow"],
        // All functions inlined into the program's function.
        &[
            "<rtprof_hooks::inner::mutex::QueueMutex as lock_api::mutex::RawMutex>::lock",
            "<lock_api::mutex::Mutex<rtprof_hooks::inner::mutex::QueueMutex, app::T>>::lock",
            "app::update",
        ],
        &["app::main"],
    ];
    assert_eq!(waiting(new_scheme), ["app::update", "app::main"]);
    let old_scheme: &[&[&str]] = &[
        &["rtprof_runtime::stack::capture"],
        &["rtprof_profiler::contention::sample_block"],
        &["rtprof_hooks::inner::mutex::QueueMutex::lock_slow"],
        &["<rtprof_hooks::inner::mutex::QueueMutex as lock_api::mutex::RawMutex>::lock"],
        &["lock_api::mutex::Mutex<R,T>::lock"],
        &["app::update"],
        &["app::main"],
    ];
    assert_eq!(waiting(old_scheme), ["app::update", "app::main"]);
}

#[test]
fn an_unlock_shows_where_the_guard_ends() {
    for drop_in_place in [
        "core::ptr::drop_in_place<lock_api::mutex::MutexGuard<rtprof_hooks::inner::mutex::QueueMutex,u8>>",
        "core::ptr::drop_in_place::<lock_api::mutex::MutexGuard<rtprof_hooks::inner::mutex::QueueMutex, u8>>",
    ] {
        assert_eq!(
            waiting(&[
                &["rtprof_profiler::contention::sample_mutex"],
                &["parking_lot_core::parking_lot::unpark_filter::{{closure}}"],
                &["rtprof_hooks::inner::mutex::QueueMutex::unlock_slow"],
                &["<lock_api::mutex::MutexGuard<R,T> as core::ops::drop::Drop>::drop"],
                &[drop_in_place],
                &["core::ptr::drop_in_place<app::Session>", "core::mem::drop"],
                &["app::close"],
                &["app::main"],
            ]),
            ["app::close", "app::main"]
        );
    }
}

#[test]
fn an_await_shows_the_leaf_future_and_not_its_cell_for_the_waker() {
    let stack: &[&[&str]] = &[
        &["rtprof_runtime::task::await_stack::here"],
        &["<rtprof_runtime::task::slot::Task>::note_await", "rtprof_hooks::inner::waker_clone::clone"],
        &[
            "<core::task::wake::Waker as core::clone::Clone>::clone",
            "<&core::task::wake::Waker as tokio::sync::task::atomic_waker::WakerRef>::into_waker",
            "<tokio::sync::task::atomic_waker::AtomicWaker>::do_register::<W>::{closure#0}",
            "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
            "std::panicking::catch_unwind::do_call::<F, W>",
            "std::panic::catch_unwind::<F, W>",
            "<tokio::sync::task::atomic_waker::AtomicWaker>::register_by_ref",
        ],
        &["<tokio::sync::mpsc::chan::Rx<T, S>>::recv::{closure#0}", "app::serve::{closure#0}"],
    ];
    let shown = ["<tokio::sync::mpsc::chan::Rx<T, S>>::recv::{closure#0}", "app::serve::{closure#0}"];
    assert_eq!(waiting(stack), shown);
}

#[test]
fn a_task_shows_who_created_it() {
    for instrument in [
        "rtprof_hooks::task::Instrument::instrument_named",
        "<app::serve::{closure#0} as rtprof_hooks::task::Instrument>::instrument_named",
    ] {
        let stack: &[&[&str]] = &[
            &["rtprof_runtime::task::await_stack::here", "<rtprof_runtime::task::slot::Task>::begin"],
            &["<rtprof_hooks::task::tracked::Tracked>::begin", instrument],
            &["app::main"],
        ];
        assert_eq!(waiting(stack), ["app::main"]);
    }
}

#[test]
fn a_thread_shows_who_created_it() {
    assert_eq!(
        waiting(&[
            &["rtprof_runtime::thread::thread_create::created"],
            &["rtprof_hooks::thread::builder::Builder::spawn"],
            &["rtprof_hooks::thread::spawn::spawn"],
            &["app::accept"],
            // The root end is not changed.
            &["rtprof_hooks::thread::creator::Creator::around::{{closure}}"],
            &["std::sys::backtrace::__rust_begin_short_backtrace"],
            &["core::ops::function::FnOnce::call_once{{vtable.shim}}"],
        ]),
        [
            "app::accept",
            "rtprof_hooks::thread::creator::Creator::around::{{closure}}",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}"
        ]
    );
}

/// Hooks run the program's closures: only the leaf's machinery is hidden.
#[test]
fn closures_beneath_hooks_stay() {
    for runs_it in [
        "<rtprof_hooks::sync::once::Once>::call_once::<app::main::{closure#0}>",
        "rtprof_hooks::sync::condvar::Condvar::wait_while",
        "lock_api::mutex::MutexGuard<R,T>::unlocked",
        "rtprof_hooks::thread::scope::scope",
        "rtprof_allocator::collector::sweep::<(), app::collect::{closure#0}>",
    ] {
        let stack: &[&[&str]] = &[
            &["rtprof_hooks::inner::mutex::QueueMutex::lock_slow", "lock_api::mutex::Mutex<R,T>::lock"],
            &["app::main::{closure#0}"],
            &[runs_it],
            &["app::main"],
        ];
        assert_eq!(waiting(stack), ["app::main::{closure#0}", runs_it, "app::main"]);
    }
    // The scope waits itself: `std::thread::scope` and its `catch_unwind` lie between.
    assert_eq!(
        waiting(&[
            &["rtprof_hooks::thread::scope::scope::{{closure}}"],
            &[
                "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once"
            ],
            &["__rust_try"],
            &["std::panicking::catch_unwind", "std::thread::scoped::scope"],
            &["rtprof_hooks::thread::scope::scope", "app::main"],
        ]),
        ["app::main"]
    );
}

/// If a program's allocator takes a lock of ours, the allocator is shown as the waiting code.
#[test]
fn a_lock_in_an_allocator_shows_the_allocator() {
    let beneath = |allocator: &[&str]| {
        let mut stack: Vec<&[&str]> =
            vec![&["rtprof_profiler::contention::sample_block"], &["lock_api::mutex::Mutex<R,T>::lock"]];
        let frames: Vec<[&str; 1]> = allocator.iter().map(|name| [*name]).collect();
        stack.extend(frames.iter().map(|frame| frame.as_slice()));
        stack.extend([
            &["__rust_alloc", "alloc::alloc::alloc", "<alloc::vec::Vec<u8>>::push"][..],
            &["app::main"],
        ]);
        waiting(&stack)[0].clone()
    };
    let forwards = "<app::Counting<A> as core::alloc::global::GlobalAlloc>::alloc";
    let ours = "<rtprof_allocator::ProfAlloc<A> as core::alloc::global::GlobalAlloc>::alloc";
    assert_eq!(beneath(&["app::Counting<A>::count", forwards, ours]), "app::Counting<A>::count");
    assert_eq!(beneath(&[forwards, ours]), forwards);
}

#[test]
fn a_span_shows_who_entered_it() {
    let through = |layer: &'static str| -> Vec<String> {
        waiting(&[
            &["rtprof_runtime::stack::capture", "rtprof_tracer::region::start", layer],
            &["<tracing_subscriber::layer::Layered<L,S> as tracing_core::subscriber::Subscriber>::enter"],
            &["tracing_core::dispatcher::Dispatch::enter", "tracing::span::Span::do_enter"],
            &["tracing::span::Span::in_scope", "app::handle"],
            &["app::main"],
        ])
    };
    assert_eq!(
        through("<rtprof_hooks::tracing::Layer as tracing_subscriber::layer::Layer<S>>::on_enter"),
        ["app::handle", "app::main"]
    );
    // A lock of the crate tracing, and of another layer, is its own.
    let other = "<tracing_subscriber::fmt::Layer<S> as tracing_subscriber::layer::Layer<S>>::on_enter";
    assert_eq!(through(other)[0], other);
}

#[test]
fn a_wait_without_a_program_keeps_what_it_has() {
    assert_eq!(
        waiting(&[&["rtprof_runtime::stack::marker::too_many_distinct_stacks"]]),
        ["rtprof_runtime::stack::marker::too_many_distinct_stacks"]
    );
    assert_eq!(
        waiting(&[
            &["rtprof_hooks::thread::sleep::sleep"],
            &["core::ops::function::call_once"],
            &["std::rt::begin"]
        ]),
        ["core::ops::function::call_once", "std::rt::begin"]
    );
    assert_eq!(
        cut_of(Machinery::Hooks, &[vec![], vec![Class::Hook]]),
        Cut::NONE,
        "nothing is known of the leaf"
    );
}

/// The hooks call closures of the interposed functions, by way of the library.
#[test]
fn a_wake_that_looks_through_the_waiters_shows_who_wakes() {
    let stack: &[&[&str]] = &[
        &["rtprof_tracer::tables::stack_here"],
        &["rtprof_tracer::states::unblock_if"],
        &["rtprof_hooks::interpose::futex::unblock"],
        &["core::ops::function::Fn::call"],
        &["rtprof_hooks::inner::sleepers::Sleepers::wake::{{closure}}"],
        &["core::ops::function::impls::<impl core::ops::function::FnMut<A> for &F>::call_mut"],
        &["rtprof_hooks::inner::sleepers::each_at"],
        &["rtprof_hooks::interpose::futex::interposed_wake"],
        &["rtprof_hooks::interpose::futex::watched::syscall"],
        &["std::sys::pal::unix::futex::futex_wake"],
        &["std::sys::sync::mutex::futex::Mutex::wake"],
        &["app::update"],
        &["app::main"],
    ];
    assert_eq!(waiting(stack), ["std::sys::sync::mutex::futex::Mutex::wake", "app::update", "app::main"]);
}
