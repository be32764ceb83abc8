//! Threads that may be cancelled at any instruction (`pthread_setcanceltype`).
//!
//! Problem: such a thread is unwound from wherever it is. Within a function of Rust that may drop something, the unwinder
//! ends the process unless the thread is in a call: Rust's tables name no other instruction. Without optimisations nearly
//! all functions are of that kind. (POSIX allows such a thread hardly any call of the C library, but most work, and
//! programs make them.)
//!
//! Scheme: these threads do not enter our functions. Each that they may call, because it only makes a system call, begins
//! with a few instructions in assembly, which jump to the C library's function. They ask two questions: whether the program
//! has ever had such a thread, which is a word beside that of the listeners, and if so, whether this thread is one of them,
//! which is a value that the C library keeps for the thread.
//!
//! ```text
//!   nanosleep ─┬─ no such thread ────────► our function
//!              └─ is_anywhere ─┬─ no ────► our function
//!                              └─ yes ───► the C library's function
//! ```
//!
//! `syscall` makes the call itself, without a function of ours. Functions for mutexes and conditions are entered, but
//! record nothing. So are functions that the C library lacks, as `epoll_pwait2` before glibc 2.35, and all functions in a
//! static program, which make the system calls themselves.

use rtprof_runtime::hook::listeners::{self, LISTENERS};

/// Clears the zero flag if the calling thread may be cancelled anywhere. Keeps the registers of arguments. The program has
/// such threads: [`listeners::cancelled_anywhere`] has a key. On x86-64 it is called where the stack pointer is that of a
/// function's beginning, so that the stack of the C library's function is aligned.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn is_anywhere() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "mov rax, [rip + {listeners}@GOTPCREL]",
        "mov edi, [rax + {anywhere}]",
        "dec edi",
        "call [rip + {get}@GOTPCREL]",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "ret",
        ".cfi_endproc",
        listeners = sym LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        get = sym libc::pthread_getspecific,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, -80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset 29, -80",
        ".cfi_offset 30, -72",
        "stp x0, x1, [sp, 16]",
        "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]",
        "stp x6, x7, [sp, 64]",
        "mov x29, sp",
        "adrp x16, :got:{listeners}",
        "ldr x16, [x16, :got_lo12:{listeners}]",
        "ldr w0, [x16, {anywhere}]",
        "sub w0, w0, 1",
        "bl {get}",
        "cmp x0, 0",
        "ldp x0, x1, [sp, 16]",
        "ldp x2, x3, [sp, 32]",
        "ldp x4, x5, [sp, 48]",
        "ldp x6, x7, [sp, 64]",
        "ldp x29, x30, [sp], 80",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore 29",
        ".cfi_restore 30",
        "ret",
        ".cfi_endproc",
        listeners = sym LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        get = sym libc::pthread_getspecific,
    );
}

/// Instructions that jump to `$ours`, unless the calling thread may be cancelled anywhere: then they go on behind. They expect
/// the address of the listeners in `rax` or `x16`, and keep the registers of arguments. The names `anywhere` and `is_anywhere`
/// are those of [`listeners::CANCELLED_ANYWHERE`] and [`is_anywhere`].
#[cfg(target_arch = "x86_64")]
macro_rules! enter_unless_anywhere {
    ($ours:literal) => {
        concat!(
            "cmp dword ptr [rax + {anywhere}], 0\n",
            "je ",
            $ours,
            "\n",
            "call {is_anywhere}\n",
            "je ",
            $ours,
            "\n",
        )
    };
}

/// As on x86-64. A conditional branch reaches no further than 1 MiB, so `$ours` is not the target of one.
#[cfg(target_arch = "aarch64")]
macro_rules! enter_unless_anywhere {
    ($ours:literal) => {
        concat!(
            "ldr w17, [x16, {anywhere}]\n",
            "cbz w17, 91f\n",
            "stp x29, x30, [sp, -16]!\n",
            ".cfi_def_cfa_offset 16\n",
            ".cfi_offset 29, -16\n",
            ".cfi_offset 30, -8\n",
            "mov x29, sp\n",
            "bl {is_anywhere}\n",
            "ldp x29, x30, [sp], 16\n",
            ".cfi_def_cfa_offset 0\n",
            ".cfi_restore 29\n",
            ".cfi_restore 30\n",
            "b.ne 92f\n",
            "91:\n",
            "b ",
            $ours,
            "\n",
            "92:\n",
        )
    };
}

/// Defines functions of the C library that threads which may be cancelled anywhere do not enter:
///
/// ```text
///   fn name(argument: Type, ..) -> Type: our function, the `Next` of the C library's;
/// ```
macro_rules! unless_anywhere {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty: $ours:path, $next:path;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As for the C library's function.
        #[cfg(not(target_feature = "crt-static"))]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, [rip + {listeners}@GOTPCREL]",
                $crate::interpose::anywhere::enter_unless_anywhere!("{ours}"),
                "mov rax, [rip + {next}]",
                "test rax, rax",
                "je {ours}",
                "jmp rax",
                ".cfi_endproc",
                listeners = sym rtprof_runtime::hook::listeners::LISTENERS,
                anywhere = const rtprof_runtime::hook::listeners::CANCELLED_ANYWHERE,
                is_anywhere = sym $crate::interpose::anywhere::is_anywhere,
                ours = sym $ours,
                next = sym $next,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                // `bti c`, as a number, for assemblers that do not know the name.
                "hint #34",
                "adrp x16, :got:{listeners}",
                "ldr x16, [x16, :got_lo12:{listeners}]",
                $crate::interpose::anywhere::enter_unless_anywhere!("{ours}"),
                "adrp x16, {next}",
                "ldr x16, [x16, :lo12:{next}]",
                "cbnz x16, 3f",
                "b {ours}",
                "3:",
                "br x16",
                ".cfi_endproc",
                listeners = sym rtprof_runtime::hook::listeners::LISTENERS,
                anywhere = const rtprof_runtime::hook::listeners::CANCELLED_ANYWHERE,
                is_anywhere = sym $crate::interpose::anywhere::is_anywhere,
                ours = sym $ours,
                next = sym $next,
            );
        }

        $(#[$attribute])*
        ///
        /// # Safety
        /// As for the C library's function.
        #[cfg(target_feature = "crt-static")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(".cfi_startproc", "endbr64", "jmp {ours}", ".cfi_endproc", ours = sym $ours);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(".cfi_startproc", "hint #34", "b {ours}", ".cfi_endproc", ours = sym $ours);
        }
    )*};
}

pub(super) use {enter_unless_anywhere, unless_anywhere};
