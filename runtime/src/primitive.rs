//! The boundary to loom: the building blocks of lock-free structures, in one place, so that loom can replace them.
//!
//! loom's atomics cannot be made in constants, so functions that make them are written with
//! [`const_fn!`](crate::const_fn), arrays of them with [`array_of!`](crate::array_of), and statics that hold them with
//! [`lazy_under_loom!`](crate::lazy_under_loom). Memory that is zeroed otherwise is filled with defaults under loom
//! ([`map_zeroed`]).
//!
//! A model test is `RUSTFLAGS="--cfg loom" cargo test -p rtprof-runtime --release loom_`.

use core::ptr::NonNull;

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub use core::hint::spin_loop;
#[cfg(not(loom))]
pub use core::sync::atomic::fence;
#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use loom::sync::atomic::fence;
#[cfg(loom)]
pub use loom::thread::yield_now;
#[cfg(not(loom))]
pub use std::thread::yield_now;

/// `core`'s cell with loom's interface.
#[cfg(not(loom))]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Makes a cell that contains `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `f`, which only reads, with the address of the contents.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Runs `f` with the address of the contents.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

#[cfg(not(loom))]
impl<T: Default> Default for UnsafeCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A function that is `const`, but not under loom.
#[macro_export]
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])*
        $visibility fn $($rest)*
    };
}

/// A static, which is made at its first use under loom.
#[macro_export]
macro_rules! lazy_under_loom {
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility static $name: $type = $value;
        #[cfg(loom)]
        $(#[$attribute])*
        $visibility static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $value);
    };
}

/// An array of `$len` values, each made separately: a constant, except under loom.
#[cfg(not(loom))]
#[macro_export]
macro_rules! array_of {
    ($value:expr; $len:expr) => {
        [const { $value }; $len]
    };
}

/// An array of `$len` values, each made separately.
#[cfg(loom)]
#[macro_export]
macro_rules! array_of {
    ($value:expr; $len:expr) => {
        core::array::from_fn::<_, { $len }, _>(|_| $value)
    };
}

/// Maps memory for `len` values, all zeroed: pages cost memory only once used. Returns `None` when the kernel grants
/// none.
///
/// # Safety
/// Zeroed memory is a valid `T`, equal to its default.
pub unsafe fn map_zeroed<T: Default>(len: usize) -> Option<NonNull<T>> {
    const { assert!(align_of::<T>() <= crate::memory::mapping::PAGE) };
    #[cfg(not(loom))]
    return Some(crate::memory::mapping::map(len * size_of::<T>())?.cast());
    #[cfg(loom)]
    {
        let all: Vec<T> = (0..len).map(|_| T::default()).collect();
        NonNull::new(Box::leak(all.into_boxed_slice()).as_mut_ptr())
    }
}

/// Unmaps memory.
///
/// # Safety
/// The memory is from [`map_zeroed`] with this length, and nothing refers to it any more.
pub unsafe fn unmap_zeroed<T>(start: NonNull<T>, len: usize) {
    #[cfg(not(loom))]
    // SAFETY: the caller passes a mapping made by `map_zeroed` with this length.
    unsafe {
        crate::memory::mapping::unmap(start.cast(), len * size_of::<T>());
    }
    #[cfg(loom)]
    // SAFETY: the caller passes memory that `map_zeroed` leaked as a slice of this length.
    drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(start.as_ptr(), len)) });
}
