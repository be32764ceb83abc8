//! Threads: their creation, their names, and waits for their end.

use core::cell::UnsafeCell;
#[cfg(not(target_feature = "crt-static"))]
use core::ffi::{CStr, c_char};
use core::ffi::{c_int, c_void};
use core::mem::{ManuallyDrop, MaybeUninit};

use libc::{pthread_attr_t, pthread_t};
use rtprof_runtime::goroutine::{self, Goroutine, Origin};
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::labels::{self, Current};
use rtprof_runtime::memory::slots::{Slot, SlotIndex, SlotTable};
use rtprof_runtime::thread::thread_create;
use rtprof_tracer::states;

use super::anywhere::unless_anywhere;
use super::forward::{errno, set_errno};
use super::watch::watch;
use crate::inner::wait::WaitReason;
use crate::thread::recorded;

/// The first function of a thread.
type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

#[cfg(not(target_feature = "crt-static"))]
pub(super) mod next {
    use super::super::forward::{Next, function};
    use super::{Function, c_char, c_int, c_void, pthread_attr_t, pthread_t};

    pub(in super::super) static CREATE: Next = Next::new();
    pub(in super::super) static JOIN: Next = Next::new();
    pub(in super::super) static SETNAME: Next = Next::new();

    type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Function, *mut c_void) -> c_int;
    type Join = unsafe extern "C-unwind" fn(pthread_t, *mut *mut c_void) -> c_int;
    type SetName = unsafe extern "C" fn(pthread_t, *const c_char) -> c_int;

    pub(super) unsafe fn create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        function: Function,
        argument: *mut c_void,
    ) -> c_int {
        match function!(CREATE, c"pthread_create", Create) {
            // SAFETY: the caller keeps the contract of the C library's function.
            Some(next) => unsafe { next(thread, attributes, function, argument) },
            None => libc::EAGAIN,
        }
    }

    pub(super) unsafe fn join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
        match function!(JOIN, c"pthread_join", Join) {
            // SAFETY: the caller keeps the contract of the C library's function.
            Some(next) => unsafe { next(thread, result) },
            None => libc::EINVAL,
        }
    }

    pub(super) unsafe fn set_name(thread: pthread_t, name: *const c_char) -> c_int {
        match function!(SETNAME, c"pthread_setname_np", SetName) {
            // SAFETY: the caller keeps the contract of the C library's function.
            Some(next) => unsafe { next(thread, name) },
            None => libc::ENOSYS,
        }
    }
}

/// Second names of these functions in glibc and musl, which exist in a static program too.
#[cfg(target_feature = "crt-static")]
mod next {
    use super::{Function, c_int, c_void, pthread_attr_t, pthread_t};

    unsafe extern "C-unwind" {
        #[link_name = "__pthread_create"]
        pub(super) fn create(
            thread: *mut pthread_t,
            attributes: *const pthread_attr_t,
            function: Function,
            argument: *mut c_void,
        ) -> c_int;
        #[link_name = "__pthread_join"]
        pub(super) fn join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    }
}

/// The function of a new thread, and what its creator passes to it. The creator takes the slot, and the thread gives it
/// back.
struct Birth {
    start: UnsafeCell<MaybeUninit<Start>>,
    index: SlotIndex,
}

struct Start {
    function: Function,
    argument: *mut c_void,
    origin: Origin,
    /// Whether the creator has recorded the creation itself.
    is_recorded: bool,
    labels: Current,
}

// SAFETY: only the creator accesses the cell until the thread begins, and then only the thread.
unsafe impl Sync for Birth {}

// SAFETY: the fields are uninitialised memory and atomics, for which zero is valid, and none is dropped.
unsafe impl Slot for Birth {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

impl Default for Birth {
    fn default() -> Self {
        Self { start: UnsafeCell::new(MaybeUninit::uninit()), index: SlotIndex::new() }
    }
}

static BIRTHS: SlotTable<Birth> = SlotTable::new();

/// The smallest stack of a thread that is recorded: the work before its first function takes some kilobytes of it.
const LEAST_STACK: usize = 64 << 10;

/// Whether a thread with these attributes has a smaller stack.
///
/// # Safety
/// The pointer is null, or points to the attributes of a thread.
unsafe fn is_small(attributes: *const pthread_attr_t) -> bool {
    let mut size = 0;
    // SAFETY: the caller keeps the contract of the C library's function; writes to a local.
    !attributes.is_null()
        && unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut size) } == 0
        && size < LEAST_STACK
}

/// # Safety
/// The slot was written, and no other thread accesses it.
unsafe fn take(birth: &'static Birth) -> Start {
    // SAFETY: the caller guarantees that the slot was written and that no other thread accesses it.
    let start = unsafe { (*birth.start.get()).assume_init_read() };
    BIRTHS.give_back(birth);
    start
}

/// The first function of every thread. Exports hide the frames of a function of this name.
unsafe extern "C-unwind" fn thread_start(birth: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` has written the slot for this thread.
    let Start { function, argument, origin, is_recorded, labels } = unsafe { take(&*birth.cast::<Birth>()) };
    // Nothing here has a destructor during the call, because a thread that calls `pthread_exit` is unwound through this
    // frame.
    let labels = ManuallyDrop::new(labels.enter());
    let goroutine = ManuallyDrop::new(goroutine::register(None, origin));
    recorded::start(is_recorded);
    // SAFETY: the creator of the thread passes a function that accepts this argument.
    let result = unsafe { function(argument) };
    ManuallyDrop::into_inner(goroutine).end_with_thread();
    drop(ManuallyDrop::into_inner(labels));
    result
}

unless_anywhere! {
    /// `int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)`
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        function: Function,
        argument: *mut c_void
    ) -> c_int: watched::pthread_create, next::CREATE;
    /// `int pthread_join(pthread_t, void **)`
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int: watched::pthread_join, next::JOIN;
}

#[cfg(not(target_feature = "crt-static"))]
unless_anywhere! {
    /// `int pthread_setname_np(pthread_t, const char *)`, which std calls in each thread that has a name.
    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int:
        watched::pthread_setname_np, next::SETNAME;
}

/// What these functions do for all threads that may not be cancelled anywhere.
mod watched {
    use super::*;

    /// # Safety
    /// As for the C library's function.
    pub(super) unsafe extern "C-unwind" fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        function: Function,
        argument: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller keeps the contract of the C library's function.
        if hidden::is_hidden(Calls::THREADS) || unsafe { is_small(attributes) } {
            // SAFETY: the caller keeps the contract of the C library's function.
            return unsafe { next::create(thread, attributes, function, argument) };
        }
        let before = errno();
        let recorded = recorded::take();
        let is_recorded = recorded.is_some();
        let created_by = if is_recorded { None } else { thread_create::stack() };
        let birth = if is_recorded || created_by.is_some() { BIRTHS.take() } else { None };
        let Some(birth) = birth else {
            set_errno(before);
            // SAFETY: the caller keeps the contract of the C library's function.
            return unsafe { next::create(thread, attributes, function, argument) };
        };
        let origin = recorded.unwrap_or_else(|| {
            let creator = goroutine::current().map_or(0, Goroutine::id);
            Origin { created_by, creator, start: None, birth: states::create("", None) }
        });
        let start = Start { function, argument, origin, is_recorded, labels: labels::current() };
        // SAFETY: this thread has taken the slot, and no other accesses it.
        unsafe { (*birth.start.get()).write(start) };
        set_errno(before);
        let argument = (&raw const *birth).cast_mut().cast();
        // SAFETY: the caller keeps the contract of the C library's function, and `thread_start` expects this slot.
        let result = unsafe { next::create(thread, attributes, thread_start, argument) };
        let after = errno();
        if result != 0 {
            // SAFETY: the slot was written above, and no thread was made that would take it.
            drop(unsafe { take(birth) });
        }
        if !is_recorded {
            match (result, origin) {
                (0, Origin { created_by: Some(bucket), .. }) => bucket.record.count_one(),
                (_, Origin { birth: Some(birth), .. }) => states::create_failed(birth),
                _ => {}
            }
        }
        set_errno(after);
        result
    }

    /// # Safety
    /// As for the C library's function.
    pub(super) unsafe extern "C-unwind" fn pthread_join(
        thread: pthread_t,
        result: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: the caller keeps the contract of the C library's function.
        watch(WaitReason::Join, || unsafe { next::join(thread, result) })
    }

    /// # Safety
    /// As for the C library's function.
    #[cfg(not(target_feature = "crt-static"))]
    pub(super) unsafe extern "C-unwind" fn pthread_setname_np(
        thread: pthread_t,
        name: *const c_char,
    ) -> c_int {
        // SAFETY: the caller keeps the contract of the C library's function.
        let result = unsafe { next::set_name(thread, name) };
        // SAFETY: the call only returns a number.
        if result == 0 && thread == unsafe { libc::pthread_self() } && goroutine::known().is_some() {
            // SAFETY: the C library has accepted the name, so it is a valid string.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            let valid = match core::str::from_utf8(name) {
                Ok(name) => name,
                // The name may end in the middle of a character.
                Err(error) => core::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or_default(),
            };
            let errno = errno();
            goroutine::rename(valid);
            // The trace has the whole name of a thread whose creator has recorded it; std's is of 15 bytes.
            if !recorded::is_starting() {
                states::rename(valid);
            }
            set_errno(errno);
        }
        result
    }
}
