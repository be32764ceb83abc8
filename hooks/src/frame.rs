//! Keeping the caller's frame on the stack.

/// To be called after a slow path, in the function that is inlined into the program's.
///
/// A guard that is dropped at the end of a function makes the slow path of `unlock` its last call. The compiler
/// would turn that into a jump, with the function's frame already gone, and the profile would name its caller. After
/// this nothing is a last call. It costs nothing where it is not passed.
#[inline(always)]
pub(crate) fn keep() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::hint::black_box(0u8);
}
