//! A stack that the program switches to by itself.

use std::cell::Cell;
use std::mem;
use std::ptr::null_mut;

/// As small as in coroutine libraries.
const SIZE: usize = 64 << 10;
const PAGE: usize = 4096;

/// A mapping with a guard page, to run functions on.
pub struct Coroutine {
    mapping: *mut libc::c_void,
}

thread_local! {
    // The closure that the coroutine runs: no argument of `makecontext` holds a pointer.
    static WORK: Cell<*mut &'static mut dyn FnMut()> = const { Cell::new(null_mut()) };
}

extern "C" fn start() {
    // SAFETY: `run` has set the pointer to its local, and waits until this function returns.
    unsafe { (*WORK.get())() };
}

impl Coroutine {
    /// Maps the stack.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: makes a new mapping.
        let mapping = unsafe { libc::mmap(null_mut(), PAGE + SIZE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies within the new mapping.
        assert_eq!(unsafe { libc::mprotect(mapping.byte_add(PAGE), SIZE, access) }, 0);
        Self { mapping }
    }

    /// Runs `work` on the coroutine's stack, to its end.
    pub fn run(&self, work: &mut dyn FnMut()) {
        // SAFETY: only the lifetime changes, and the coroutine ends before this function returns, so `work` outlives
        // its use.
        let mut work: &'static mut dyn FnMut() = unsafe { mem::transmute(work) };
        WORK.set(&raw mut work);
        // SAFETY: the contexts live until the coroutine has ended and switched back to this context.
        unsafe {
            let mut here: libc::ucontext_t = mem::zeroed();
            let mut there: libc::ucontext_t = mem::zeroed();
            assert_eq!(libc::getcontext(&raw mut there), 0);
            there.uc_stack.ss_sp = self.mapping.byte_add(PAGE);
            there.uc_stack.ss_size = SIZE;
            there.uc_link = &raw mut here;
            libc::makecontext(&raw mut there, start, 0);
            assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
        }
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no coroutine runs there.
        unsafe { libc::munmap(self.mapping, PAGE + SIZE) };
    }
}
