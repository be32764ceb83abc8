//! Keeping the caller's frame on the stack.

/// Keeps the current function's frame. Called after a slow path, in the function that is inlined into the program's.
///
/// A guard that is dropped at the end of a function makes the slow path of `unlock` its last call. The compiler would
/// turn that call into a jump, which removes the function's frame, and the profile would show its caller instead. With
/// this call at the end the slow path is not the last call. The fast path does not reach it.
#[inline(always)]
pub(crate) fn keep() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: the assembly is empty.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::hint::black_box(0u8);
}
