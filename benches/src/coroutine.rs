//! A stack that the program switches to by itself.

use std::cell::Cell;
use std::mem;
use std::ptr::null_mut;

/// As small as coroutine libraries make them.
const SIZE: usize = 64 << 10;
const PAGE: usize = 4096;

/// A mapping with a guard page, to run functions on.
pub struct Coroutine {
    mapping: *mut libc::c_void,
}

thread_local! {
    // What the coroutine is to run: no argument of `makecontext` holds a pointer.
    static WORK: Cell<*mut &'static mut dyn FnMut()> = const { Cell::new(null_mut()) };
}

extern "C" fn start() {
    // SAFETY: `run` has set it to its own local, and waits.
    unsafe { (*WORK.get())() };
}

impl Coroutine {
    /// Maps the stack.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let mapping = unsafe { libc::mmap(null_mut(), PAGE + SIZE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: within it.
        assert_eq!(unsafe { libc::mprotect(mapping.byte_add(PAGE), SIZE, access) }, 0);
        Self { mapping }
    }

    /// Runs `work` there, to its end.
    pub fn run(&self, work: &mut dyn FnMut()) {
        // SAFETY: only the lifetime changes, and `work` outlives what runs before this function returns.
        let mut work: &'static mut dyn FnMut() = unsafe { mem::transmute(work) };
        WORK.set(&raw mut work);
        // SAFETY: the contexts live until the coroutine has ended and come back to this one.
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
        // SAFETY: mapped in `new`, and nothing runs there.
        unsafe { libc::munmap(self.mapping, PAGE + SIZE) };
    }
}
