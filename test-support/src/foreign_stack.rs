//! Stacks that the program switches to by itself.

use std::arch::global_asm;

// Computes with the given stack pointer, and then returns to the stack that it was called on. By the unwind tables the
// return address lies where the stack pointer points.
global_asm!(
    ".globl rtprof_test_compute_at",
    ".type rtprof_test_compute_at, @function",
    "rtprof_test_compute_at:",
    ".cfi_startproc",
    "mov r11, rsp",
    "mov rsp, rdi",
    "mov ecx, 20000",
    "2: dec ecx",
    "jnz 2b",
    "mov rsp, r11",
    "ret",
    ".cfi_endproc",
    ".size rtprof_test_compute_at, . - rtprof_test_compute_at",
);

unsafe extern "C" {
    fn rtprof_test_compute_at(stack_pointer: usize);
}

/// Computes with a stack pointer that points to no memory: to the guard page at the end of a stack, as between the two
/// instructions of a switch to it, and to invalid addresses.
#[inline(never)]
pub fn switches_stacks() {
    const SIZE: usize = 64 << 10;
    const PAGE: usize = 4 << 10;
    // SAFETY: this function owns the mapping, which has a page at its end that cannot be read. The callee restores the
    // stack pointer, and during the call signals run on the alternate stack that std gives to each thread.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let base = libc::mmap(std::ptr::null_mut(), SIZE + PAGE, access, kind, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(base.byte_add(SIZE), PAGE, libc::PROT_NONE), 0);
        let top = base.addr() + SIZE;
        for stack_pointer in [top, top - 8, 8, usize::MAX - 15] {
            rtprof_test_compute_at(stack_pointer);
        }
        assert_eq!(libc::munmap(base, SIZE + PAGE), 0);
    }
}
