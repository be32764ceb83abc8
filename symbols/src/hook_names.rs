//! The functions between the program and its waits: our own locks, channels and threads, and the crates on which they
//! are built.
//!
//! Some of them run the program's closures: `Once::call_once`, `Condvar::wait_while`, `MutexGuard::unlocked`, the start
//! of a thread. So a match says nothing about the frames beneath it, only that the frame itself is not code of the
//! program. Where inlined functions are unknown it does not even say that, because the closure may be inlined there.

use crate::brackets::{Qualified, last_segment};
use crate::path::in_crate;

/// Our own crates, and those of the locks that they are built on; `scopeguard` is how `MutexGuard::unlocked` locks
/// again. `flight::files` records messages about slow operations and panics.
const CRATES: [&str; 7] = [
    "rtprof_hooks",
    "rtprof_trace_out::flight::files",
    "rtprof_tracer",
    "lock_api",
    "parking_lot_core",
    "parking_lot",
    "scopeguard",
];

/// The functions by which programs report their collector: each runs a closure of the program.
const COLLECTOR: &str = "rtprof_allocator::collector";

/// The types in which leaf futures keep the waker of the awaiting task. They clone the waker with ten functions in
/// between.
const WAKER_CELLS: [&str; 3] =
    ["atomic_waker", "futures_core::task::__internal::atomic_waker", "tokio::sync::task::atomic_waker"];

/// Our own trait for all futures. No other type can have its methods.
const INSTRUMENT: &str = "rtprof_hooks::task::Instrument";

/// The module of ours that runs no code of the program.
const INNER: &str = "rtprof_hooks::inner";

/// Words of method names. A method whose name consists of them runs no code of the program, wherever the words stand:
/// `try_lock_for`, `recv_timeout`, but not `wait_while`. A `spawn` runs the program's closure in another thread,
/// through `Creator::around`; a `wake` or `release` of a task calls its executor, through a pointer.
#[rustfmt::skip]
const WORDS: [&str; 43] = [
    "acquire", "all", "arc", "bump", "by", "call", "deadline", "downgrade", "end", "exclusive", "fair", "for", "join",
    "lock", "many", "next", "notify", "now", "one", "park", "read", "recursive", "recv", "ref", "release", "scoped",
    "send", "shared", "sleep", "slow", "spawn", "timeout", "to", "try", "unchecked", "unlock", "unpark", "until",
    "upgradable", "upgrade", "wait", "wake", "write",
];

/// The pattern for profiles that are symbolized elsewhere. A reader drops a match *and all that it called*, so only
/// functions that never call back into the program may match. Therefore `lock_api` matches only over our own raw locks,
/// because the program may use other raw locks beneath it. No guard that shares ownership matches, because it may drop
/// the data.
pub const DROP_FRAMES: &str = concat!(
    r"<?rtprof_(profiler|runtime)::(stack|contention|thread_create|task::await_stack)::.*",
    // Other functions of a task wake and drop it, which is the executor's business.
    r"|<?rtprof_runtime::task::slot::Task>?::note_await.*",
    // A ` as ` matches only with a known trait: a trait of the program may do anything.
    r"|<?rtprof_hooks::inner::([^ ]|, )*( as (lock_api|core)::([^ ]|, )*)?",
    r"|<lock_api::[a-z]+::(Mapped)?(Mutex|RwLock(Read|Write|UpgradableRead)?)(Guard)?",
    r"<rtprof_hooks::inner::(mutex::QueueMutex|rw_lock::QueueRwLock), ([^ ]|, )*>>",
    r"::(try_)?(lock|read|write|upgradable_read|upgrade|downgrade|unlock|bump)(_[a-z]+)*",
    r"|<lock_api::[a-z]+::(Mapped)?(Mutex|RwLock(Read|Write|UpgradableRead))Guard",
    r"<rtprof_hooks::inner::(mutex::QueueMutex|rw_lock::QueueRwLock), .* as core::ops::drop::Drop>::drop",
    // `go tool pprof` knows only the last segment of a name. These are our own functions, or slow paths of locks.
    r"|sample_block|sample_mutex|(un)?lock(_[a-z]+)*_slow|interposed_(call|futex|io|operation|wait|wake)",
);

/// Whether a function replaces one of the C library's, or is inside such a function. A function that keeps the C
/// library's name, as `pthread_mutex_lock` does, is shown as the C library's would be. Others only jump to one of our
/// functions, and have no frame.
pub(crate) fn is_interposed(name: &str) -> bool {
    in_crate(name, "rtprof_hooks::interpose") && !is_interposed_start(name)
}

/// Returns the name of the C library's function that one of ours replaces, for the outermost of ours: the function with
/// the C library's name only jumps there, and is in no stack.
pub(crate) fn call_name(name: &str) -> Option<&str> {
    let inner = name.strip_prefix("rtprof_hooks::interpose::")?;
    if let Some((_, call)) = inner.split_once("watched::") {
        // A closure in it is not the outermost.
        return (!call.contains("::")).then_some(call);
    }
    let is_futex = matches!(
        inner.strip_prefix("futex::"),
        Some("futex_by_caller" | "interposed_futex" | "interposed_operation" | "unwatched_futex_returned")
    );
    is_futex.then_some("syscall")
}

/// Whether a function makes the system calls of the interposed functions.
pub(crate) fn makes_system_call(name: &str) -> bool {
    name == "rtprof_hooks::interpose::forward::system_call"
}

/// Whether a function replaces the C library's that creates a thread.
pub(crate) fn is_interposed_creation(name: &str) -> bool {
    in_crate(name, "rtprof_hooks::interpose::threads") && last_segment(name) == Some("pthread_create")
}

/// Whether a function of std creates a thread, and runs no code of the program: `std::thread::spawn`,
/// `std::sys::thread::unix::Thread::new`.
pub(crate) fn is_spawn(name: &str) -> bool {
    in_crate(name, "std")
        && name.contains("::thread")
        && last_segment(name).is_some_and(|method| method == "new" || method.starts_with("spawn"))
}

/// Whether a function belongs to our layer for the spans of the crate tracing.
pub(crate) fn is_span_layer(name: &str) -> bool {
    in_crate(name, "rtprof_hooks::tracing")
}

/// Whether a function belongs to the crate tracing, which passes a span on to the layers. Some of them run the
/// program's closures, so that a match says nothing about the frames beneath.
pub(crate) fn is_dispatch(name: &str) -> bool {
    ["tracing", "tracing_core", "tracing_subscriber"].iter().any(|krate| in_crate(name, krate))
}

/// Whether a function only makes the system call with which locks wait and wake.
pub(crate) fn is_system_call(name: &str) -> bool {
    in_crate(name, "parking_lot_core::thread_parker")
        || in_crate(name, "std::sys")
            && last_segment(name).is_some_and(|method| method.starts_with("futex_wa"))
}

/// Whether a function, by its demangled name of either scheme, belongs to the hooks.
pub(crate) fn is_hook(name: &str, inlines_known: bool) -> bool {
    is_guard_drop(name)
        || inlines_known && (in_crate(name, COLLECTOR) || is_waker_cell(name))
        || trait_of(name) == Some(INSTRUMENT)
        || CRATES.iter().any(|krate| in_crate(name, krate))
            && trait_of(name).is_none_or(is_known_trait)
            && (inlines_known || is_inner(name) || runs_no_closure(name))
}

/// Whether a function belongs to a cell for a waker, or to a trait that only such a cell uses.
fn is_waker_cell(name: &str) -> bool {
    let is_in = |path: &str| WAKER_CELLS.iter().any(|module| in_crate(path, module));
    is_in(name) || trait_of(name).is_some_and(is_in)
}

/// Whether a function, by its name without type arguments, is one that the hooks put between the start of a thread and
/// the program's closure: it is in every stack of the thread, and of no interest in any.
pub(crate) fn is_thread_start(short_name: &str) -> bool {
    is_interposed_start(short_name)
        || ["rtprof_hooks::thread::creator::", "rtprof_hooks::thread::scope::Scope::start::"]
            .iter()
            .any(|module| short_name.strip_prefix(module).is_some_and(|path| path.contains("{closure")))
}

/// The function that polls a task: the outermost function of its stacks.
pub(crate) const TASK_START: &str = "rtprof_runtime::boundary::poll_task";

/// Whether a function, by its name without type arguments, is one between [`TASK_START`] and the future of a task.
pub(crate) fn is_task_start(short_name: &str) -> bool {
    short_name.starts_with("rtprof_runtime::boundary::run")
        || short_name.starts_with("rtprof_hooks::task::labelled::")
        || ["rtprof_hooks::task::instrumented::", "rtprof_hooks::task::tracked::"]
            .iter()
            .any(|module| short_name.strip_prefix(module).is_some_and(|path| path.contains("{closure")))
}

/// Whether a function is the first function of threads whose creation was seen by interposition.
pub(crate) fn is_interposed_start(short_name: &str) -> bool {
    short_name == "rtprof_hooks::interpose::threads::thread_start"
}

/// Whether this is the drop of a guard, which only unlocks. The drop of any other type may drop the program's objects.
fn is_guard_drop(name: &str) -> bool {
    if let Some(guard) = name.strip_suffix(" as core::ops::drop::Drop>::drop") {
        return guard.strip_prefix('<').is_some_and(is_guard);
    }
    // The old scheme has `drop_in_place<T>`, the new one `drop_in_place::<T>`.
    name.strip_prefix("core::ptr::drop_in_place")
        .or_else(|| name.strip_prefix("core::mem::drop"))
        .and_then(|rest| rest.trim_start_matches("::").strip_prefix('<'))
        .is_some_and(is_guard)
}

/// Whether a type is a guard: `lock_api::mutex::MutexGuard<R, T>`, but not `ArcMutexGuard`, which may be the last owner
/// of the data.
fn is_guard(kind: &str) -> bool {
    let path = kind.split(['<', '>', ' ']).next().unwrap_or(kind);
    ["rtprof_hooks", "rtprof_trace_out", "lock_api"].iter().any(|krate| in_crate(path, krate))
        && path.rsplit("::").next().is_some_and(|kind| kind.ends_with("Guard") && !kind.starts_with("Arc"))
}

/// Whether a trait is known to run no code of the program. A trait of the program on our type is the program's code.
fn is_known_trait(path: &str) -> bool {
    ["alloc", "core", "std"].iter().chain(&CRATES).any(|krate| in_crate(path, krate))
}

/// Returns the trait in `<Type as Trait>::method`.
fn trait_of(name: &str) -> Option<&str> {
    Qualified::of(name)?.of_trait
}

fn is_inner(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&']);
    in_crate(path, "parking_lot_core")
        || path.strip_prefix("rtprof_tracer::").is_some_and(|path| !path.starts_with("region::with_region"))
        || in_crate(path, INNER)
}

fn runs_no_closure(name: &str) -> bool {
    // In this module the words are misleading: `wait` and `syscall` run the program's waiting closure.
    if in_crate(name, "rtprof_hooks::trace") {
        return false;
    }
    let mut path = name;
    // A closure inside a function that takes none from the program.
    while let Some((outer, last)) = path.rsplit_once("::")
        && last.starts_with('{')
        && last.ends_with('}')
    {
        path = outer;
    }
    last_segment(path).is_some_and(|method| method.split('_').all(|word| WORDS.contains(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::short;

    #[test]
    fn names_of_both_schemes() {
        for name in [
            "<rtprof_hooks::inner::mutex::QueueMutex>::lock_slow",
            "rtprof_hooks::inner::mutex::QueueMutex::unlock_slow",
            "<rtprof_hooks::inner::mutex::QueueMutex>::unlock_slow::{closure#0}",
            "<rtprof_hooks::inner::mutex::QueueMutex as lock_api::mutex::RawMutex>::lock",
            "<lock_api::mutex::Mutex<rtprof_hooks::inner::mutex::QueueMutex, app::T>>::lock",
            "lock_api::mutex::Mutex<R,T>::try_lock_for",
            "<lock_api::rwlock::RwLock<R, alloc::vec::Vec<u8>>>::upgradable_read",
            "parking_lot_core::parking_lot::park::{{closure}}",
            "parking_lot_core::parking_lot::unpark_filter::<F, C>",
            "<parking_lot_core::thread_parker::imp::ThreadParker as parking_lot_core::thread_parker::ThreadParkerT>::park",
            "rtprof_hooks::inner::queue::park::<app::A, app::B>",
            "rtprof_hooks::inner::primitive::real::report::charged",
            "<rtprof_hooks::inner::charged_queue::ChargedQueue>::with_account::<u64, rtprof_hooks::inner::mutex::A>::{closure#0}",
            "<rtprof_hooks::inner::wait::Wait>::end",
            "<rtprof_hooks::sync::mpsc::Receiver<app::Job>>::recv_timeout",
            "<rtprof_hooks::sync::condvar::Condvar>::wait_until",
            "<rtprof_hooks::sync::once::Once>::call_slow",
            "<<rtprof_hooks::inner::mutex::QueueMutex>::sleep::{closure#0} as core::ops::function::FnOnce<()>>::call_once",
            "rtprof_hooks::thread::sleep::sleep",
            "rtprof_hooks::task::waker::wake_by_ref",
            "rtprof_hooks::thread::spawn::spawn::<app::main::{closure#0}, ()>",
            "<rtprof_hooks::thread::builder::Builder>::spawn_scoped::<app::main::{closure#0}, ()>",
            "core::ptr::drop_in_place<lock_api::mutex::MutexGuard<rtprof_hooks::inner::mutex::QueueMutex,()>>",
            "core::ptr::drop_in_place::<lock_api::rwlock::RwLockReadGuard<R, app::T>>",
            "core::mem::drop::<lock_api::mutex::MutexGuard<R, app::T>>",
            "<rtprof_tracer::lane_writer::LaneWriter>::append::<<rtprof_tracer::lane_writer::LaneWriter>::put<3>::{closure#0}>",
            "rtprof_tracer::states::block",
            "rtprof_tracer::region::start",
            "<lock_api::mutex::MappedMutexGuard<R,T> as core::ops::drop::Drop>::drop",
            "<rtprof_hooks::inner::semaphore::SemaphoreGuard as core::ops::drop::Drop>::drop",
            "<rtprof_trace_out::flight::files::LatencyGuard as core::ops::drop::Drop>::drop",
            "core::ptr::drop_in_place::<rtprof_trace_out::flight::files::LatencyGuard>",
        ] {
            assert!(is_hook(name, true) && is_hook(name, false), "{name}");
        }
    }

    /// A reader that drops frames by their names drops what they called too.
    #[test]
    fn what_runs_the_program_is_not_dropped_with_its_callees() {
        let pattern = regex_lite::Regex::new(&format!("^(?:{DROP_FRAMES})$")).unwrap();
        for name in [
            "rtprof_hooks::inner::queue::park",
            "<rtprof_hooks::inner::mutex::QueueMutex as lock_api::mutex::RawMutex>::lock",
            "<rtprof_hooks::inner::semaphore::Semaphore>::acquire_many",
            "rtprof_hooks::inner::waker_clone::clone",
            "<rtprof_runtime::task::slot::Task>::note_await",
            "rtprof_runtime::task::slot::Task::note_await::{{closure}}",
            "rtprof_runtime::stack::capture",
        ] {
            assert!(pattern.is_match(name), "{name}");
        }
        for name in [
            "rtprof_hooks::task::waker::wake",
            "<rtprof_runtime::task::slot::Task>::wake",
            "<rtprof_hooks::inner::mutex::QueueMutex as app::Ext>::f",
            "rtprof_hooks::sync::condvar::Condvar::wait_while",
            "app::inner::f",
        ] {
            assert!(!pattern.is_match(name), "{name}");
        }
    }

    #[test]
    fn what_may_run_the_program_is_told_apart_if_inlined_functions_are_known() {
        for name in [
            "rtprof_hooks::trace::wait::<(), app::work::{closure#0}>",
            "rtprof_hooks::trace::syscall",
            "<rtprof_hooks::sync::once::Once>::call_once::<app::main::{closure#0}>",
            "<rtprof_hooks::sync::condvar::Condvar>::wait_while::<app::T, app::lock>",
            "<rtprof_hooks::thread::creator::Creator>::around::<app::main::{closure#0}, ()>::{closure#0}",
            "rtprof_hooks::thread::creator::Creator::around::{{closure}}",
            "rtprof_hooks::thread::scope::scope",
            "<lock_api::mutex::MutexGuard<R, T>>::unlocked::<app::main::{closure#0}, ()>",
            "lock_api::mutex::MutexGuard<R,T>::map",
            "rtprof_tracer::region::with_region::<app::main::{closure#0}, ()>",
            "<lock_api::mutex::Mutex<R, app::T> as core::fmt::Debug>::fmt",
            "<rtprof_hooks::sync::mpsc::Receiver<app::Job> as core::ops::drop::Drop>::drop",
            "<lock_api::mutex::ArcMutexGuard<R, app::T> as core::ops::drop::Drop>::drop",
            "<scopeguard::ScopeGuard<T,F,S> as core::ops::drop::Drop>::drop",
        ] {
            assert!(is_hook(name, true), "{name}");
            assert!(!is_hook(name, false), "{name}");
        }
    }

    #[test]
    fn calls_go_by_the_name_of_the_c_librarys_function() {
        for (name, call) in [
            ("rtprof_hooks::interpose::sleeps::watched::nanosleep", Some("nanosleep")),
            ("rtprof_hooks::interpose::files::watched::read", Some("read")),
            ("rtprof_hooks::interpose::futex::interposed_operation", Some("syscall")),
            ("rtprof_hooks::interpose::yields::watched::sched_yield::{{closure}}", None),
            ("rtprof_hooks::interpose::futex::interposed_wait::<app::main::{closure#0}>", None),
            ("app::watched::read", None),
        ] {
            assert_eq!(call_name(name), call, "{name}");
        }
    }

    #[test]
    fn the_start_of_a_thread() {
        for name in [
            "<rtprof_hooks::thread::creator::Creator>::around::<app::main::{closure#0}, ()>::{closure#0}",
            "rtprof_hooks::thread::creator::Creator::around::{{closure}}",
            "<<rtprof_hooks::thread::creator::Creator>::around<F, T>::{closure#0} as core::ops::function::FnOnce<()>>::call_once",
            // Names with line tables only.
            "rtprof_hooks::thread::creator::{closure#0}",
            "<rtprof_hooks::thread::scope::Scope>::start::<app::main::{closure#0}, ()>::{closure#0}",
        ] {
            assert!(is_thread_start(&short(name)), "{name}");
        }
        for name in [
            "<rtprof_hooks::thread::creator::Creator>::around::<app::main::{closure#0}, ()>",
            "rtprof_hooks::thread::scope::scope::{closure#0}",
            "app::rtprof_hooks::thread::creator::{closure#0}",
            "app::main::{closure#0}",
        ] {
            assert!(!is_thread_start(&short(name)), "{name}");
        }
    }

    #[test]
    fn the_start_of_a_task() {
        for name in [
            "rtprof_runtime::boundary::run::call::<app::main::{closure#0}, u8>",
            "rtprof_runtime::boundary::run::<app::main::{closure#0}, u8>",
            "<rtprof_hooks::task::tracked::Tracked>::poll::<(), F>::{closure#0}",
            "rtprof_hooks::task::instrumented::Instrumented<F>::poll::{{closure}}",
            "<rtprof_hooks::task::labelled::Labelled<F> as core::future::future::Future>::poll",
            "<rtprof_hooks::task::instrumented::Instrumented<F> as core::future::future::Future>::poll::{closure#0}",
        ] {
            assert!(is_task_start(&short(name)), "{name}");
        }
        for name in
            ["app::main::{closure#0}", "<rtprof_hooks::task::tracked::Tracked>::poll::<(), F>", TASK_START]
        {
            assert!(!is_task_start(&short(name)), "{name}");
        }
    }

    #[test]
    fn the_programs_code_is_none() {
        for name in [
            "app::lock",
            "app::rtprof_hooks::lock",
            "lock_api_extra::lock",
            "<app::Spin as lock_api::mutex::RawMutex>::lock",
            "<lock_api::mutex::Mutex<R, fn(u8) -> app::T> as app::LockExt>::lock",
            "<lock_api::mutex::Mutex<<app::A as app::B>::C, T> as app::LockExt>::lock",
            "core::ptr::drop_in_place::<app::Session>",
            "core::ptr::drop_in_place::<lock_api::mutex::Mutex<R, app::Session>>",
            "core::ptr::drop_in_place::<lock_api::mutex::ArcMutexGuard<R, app::Session>>",
            "core::ptr::drop_in_place",
            "core::mem::drop",
            "std::sync::mutex::Mutex<T>::lock",
        ] {
            assert!(!is_hook(name, true), "{name}");
        }
    }
}
