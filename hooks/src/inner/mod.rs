//! What runs no code of the program: neither a closure nor a trait of it, nor the drop of its data. The exceptions are the
//! writer that `Debug` is given, and an executor's waker in `waker_clone`.
//!
//! A profile hides the functions of this module, and readers that find the names themselves drop them *with all that they
//! called* (`DROP_FRAMES` in `symbols/src/hook_names.rs`). So the mechanism of a lock stands here, and what calls the program
//! stands outside: [`Condvar::wait_while`](crate::sync::Condvar::wait_while) in `sync`, its queue here. A new lock is right by
//! where its file stands.
//!
//! Models (`RUSTFLAGS="--cfg loom"`) compile this module and [`frame`](crate::frame).

#[cfg(loom)]
mod model;

pub(crate) mod account;
pub(crate) mod charged_queue;
pub(crate) mod mutex;
mod mutex_state;
pub(crate) mod primitive;
pub(crate) mod queue;
pub(crate) mod queue_condvar;
pub(crate) mod rw_lock;
mod rw_state;
#[cfg(any(rtprof_interposed, all(test, loom)))]
pub(crate) mod sleepers;
pub(crate) mod spin;
pub(crate) mod ticks;
pub(crate) mod wait;
mod waiters;
#[cfg(all(rtprof_interposed, not(loom)))]
pub(crate) mod within;

// Not modelled: what calls the kernel or the executor, the traits for `lock_api`, and other locks on the queue.
#[cfg(not(loom))]
pub(crate) mod barrier;
#[cfg(not(loom))]
pub(crate) mod deadline;
#[cfg(not(loom))]
mod mutex_traits;
#[cfg(not(loom))]
mod rw_lock_traits;
#[cfg(not(loom))]
pub(crate) mod semaphore;
#[cfg(not(loom))]
pub(crate) mod waker_clone;
