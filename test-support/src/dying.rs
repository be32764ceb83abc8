//! Threads whose destructors run a function, including the latest destructors of a thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::LazyLock;

/// The number of times that [`run`] runs its function.
pub const DESTRUCTORS: i64 = 2 + 4;

/// Runs its function when its thread ends; the first one registers a second one.
struct Dying {
    is_first: bool,
    act: fn(),
}

thread_local! {
    static FIRST: RefCell<Option<Dying>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<Dying>> = const { RefCell::new(None) };
}

impl Drop for Dying {
    fn drop(&mut self) {
        (self.act)();
        // Registers a destructor while destructors run.
        if self.is_first {
            SECOND.with(|second| second.replace(Some(Dying { is_first: false, act: self.act })));
        }
    }
}

/// A pthread key. Its destructor re-arms itself until libc stops, after 4 rounds: later than any destructor of Rust.
static KEY: LazyLock<libc::pthread_key_t> = LazyLock::new(|| {
    let mut key = 0;
    // SAFETY: `key` outlives the call.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(key_destructor)) }, 0);
    key
});

fn arm(act: *const fn()) {
    // SAFETY: the key exists for the rest of the process.
    assert_eq!(unsafe { libc::pthread_setspecific(*KEY, act.cast()) }, 0);
}

unsafe extern "C" fn key_destructor(value: *mut c_void) {
    let act = value.cast::<fn()>().cast_const();
    // SAFETY: `run` leaked the pointer for this destructor, so it stays valid.
    unsafe { (*act)() };
    arm(act);
}

/// Starts a thread, and waits for its end. `act` runs in destructors of two thread-locals, the second registered by the
/// first, and in all rounds of a pthread key's destructor.
pub fn run(act: fn()) {
    let kept: &'static fn() = Box::leak(Box::new(act));
    let body = move || {
        FIRST.with(|first| first.replace(Some(Dying { is_first: true, act })));
        arm(kept);
    };
    std::thread::spawn(body).join().expect("the thread ends well");
}
