//! What the hooks stand on: atomics and cells, the wait queue, goroutines and their states, the clock, and the records. Models
//! replace all of it by loom's types and by [`model`](crate::inner::model).
//!
//! A model test is `RUSTFLAGS="--cfg loom" cargo test -p rtprof-hooks --release loom_`.

pub(crate) use rtprof_runtime::primitive::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, UnsafeCell,
};

#[cfg(not(loom))]
pub(crate) use real::*;
#[cfg(not(loom))]
mod real {
    pub(crate) use parking_lot_core as parking;
    pub(crate) use rtprof_runtime::{clock, goroutine, process};
    pub(crate) use rtprof_tracer::states;

    pub(crate) mod report {
        use rtprof_profiler::{BlockKinds, contention};

        use crate::inner::account::Charge;
        use rtprof_runtime::goroutine::wait_reason::WaitReason;

        #[inline]
        pub(crate) fn blocked(reason: WaitReason, ticks: u64) {
            let kind = BlockKinds::of(reason);
            if contention::is_block_kind_on(kind) {
                contention::block_event(kind, ticks);
            }
        }

        #[inline]
        pub(crate) fn charged(charge: Charge) {
            contention::mutex_event(charge.waits, charge.ticks);
        }

        #[inline]
        pub(crate) fn is_charged() -> bool {
            contention::is_mutex_profile_on()
        }
    }
}

#[cfg(loom)]
pub(crate) use crate::inner::model::{clock, goroutine, parking, process, report, states};
