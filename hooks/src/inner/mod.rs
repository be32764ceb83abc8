//! What runs no code of the program: neither a closure nor a trait of it, nor the drop of its data.
//!
//! A profile hides the functions of this module, and readers that find the names themselves drop them *with all that they
//! called* (`DROP_FRAMES` in `symbols/src/hook_names.rs`). So a function belongs here if it is, or calls, the slow path of a
//! wait, and it stays outside if it calls the program: [`Condvar::wait_while`](crate::sync::Condvar::wait_while) stands in
//! `sync`, the queue under it here. A new lock is right by where its file stands.
//!
//! Models (`RUSTFLAGS="--cfg loom"`) compile this module alone.

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
pub(crate) mod wait;
mod waiters;

// Not modelled: what calls the kernel or the executor, the traits for `lock_api`, and what is built on these locks.
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
pub(crate) mod waker;
