//! How many tasks tokio has, beside those that rtprof follows: tasks that `tokio::spawn` has made are in no profile, and a
//! reader of the goroutine profile must not take what is there for all.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use rtprof_runtime::fork_safe::ForkMutex;
use rtprof_runtime::task::{self, Task};
use tokio::runtime::Handle;

/// The runtime in which the task [`HOLDER`] began. tokio has no name for a runtime by which two could be told apart, so
/// others are not counted. A handle keeps descriptors of its runtime open, also when the program has dropped the runtime. So
/// it is held only until that task ends; the next task that begins brings another.
static RUNTIME: ForkMutex<Option<Handle>> = ForkMutex::new(None);
static HOLDER: AtomicPtr<Task> = AtomicPtr::new(ptr::null_mut());

/// Notes the current runtime, if none is known. Called when a task has begun.
#[inline]
pub(super) fn begun(task: &'static Task) {
    if HOLDER.load(Ordering::Relaxed).is_null() {
        hold(task);
    }
}

#[cold]
fn hold(task: &'static Task) {
    let Ok(handle) = Handle::try_current() else { return };
    let Some(mut runtime) = RUNTIME.lock() else { return };
    if runtime.is_none() {
        *runtime = Some(handle);
        HOLDER.store(ptr::from_ref(task).cast_mut(), Ordering::Relaxed);
        task::set_executor_tasks(live_tasks);
    }
}

/// Lets the runtime go that was noted with this task. Called before the task ends.
#[inline]
pub(super) fn ends(task: &'static Task) {
    if ptr::eq(HOLDER.load(Ordering::Relaxed), task) {
        let_go();
    }
}

#[cold]
fn let_go() {
    let Some(mut runtime) = RUNTIME.lock() else { return };
    let handle = runtime.take();
    HOLDER.store(ptr::null_mut(), Ordering::Relaxed);
    drop(runtime);
    // Its destructor is tokio's.
    drop(handle);
}

/// Returns the number of live tasks; `None` before tokio 1.41, which does not tell it.
fn live_tasks() -> Option<usize> {
    #[allow(unused_imports)]
    use absent::{Alive, Metrics};
    // Methods of tokio, if its version has them, take precedence over those of the traits.
    RUNTIME.lock()?.as_ref()?.metrics().num_alive_tasks().into()
}

/// Stands in for methods that older versions of tokio lack.
#[allow(dead_code)]
mod absent {
    use tokio::runtime::Handle;

    pub(super) trait Metrics {
        fn metrics(&self) {}
    }

    impl Metrics for Handle {}

    pub(super) trait Alive {
        fn num_alive_tasks(&self) -> Option<usize> {
            None
        }
    }

    impl<T> Alive for T {}
}
