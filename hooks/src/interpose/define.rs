//! Definitions of C library functions that only make a system call.

use core::ffi::{c_int, c_long};
#[cfg(not(target_feature = "crt-static"))]
use core::{
    ffi::CStr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// An argument that is passed to the kernel in a register.
pub(super) trait Word: Copy {
    fn word(self) -> usize;
}

macro_rules! words {
    ($($type:ty)*) => {
        $(impl Word for $type {
            #[inline(always)]
            fn word(self) -> usize {
                // A signed number is sign-extended, as the C library does.
                self as usize
            }
        })*
    };
}

words!(c_int u32 c_long usize isize);

impl<T> Word for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// Defines functions of the C library. Each forwards to the C library's definition, or makes the system call itself if
/// there is no other definition: before the constructor has run, and in a static program.
///
/// ```text
///   fn name(argument: Type, ..) -> Type: what it is for `calls::interposed_io`, => result of the kernel;
/// ```
///
/// Also defines `NEXT`, the list of functions to look up.
///
/// A program makes many of these calls, and most of the time nothing is recorded. So the function of that name reads
/// one word and jumps: it has no frame, and the C library's function returns to the caller directly.
///
/// ```text
///   read ── nothing recorded ─► next::read, the C library's, or else kernel::read
///     └──── recording ───────► watched::read ─► interposed_io ─► next::read
/// ```
macro_rules! interposed {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty: $call:expr, => $raw:expr;)*) => {
        /// Each function as a system call.
        mod kernel {
            #[allow(clippy::wildcard_imports, reason = "whatever the system calls are given")]
            use super::*;

            $(pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the caller keeps the contract of the C library's function.
                $crate::interpose::forward::returned(unsafe { $raw }) as $result
            })*
        }

        /// The function that each forwards to.
        mod next {
            use core::sync::atomic::AtomicPtr;

            $(#[allow(non_upper_case_globals, reason = "the name of a function")]
            pub(super) static $name: AtomicPtr<()> = AtomicPtr::new(super::kernel::$name as *mut ());)*
        }

        /// Each function while something is recorded.
        mod watched {
            #[allow(clippy::wildcard_imports, reason = "whatever decides what kind of call it is")]
            use super::*;

            $(pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                #[allow(unused_unsafe, reason = "most have no pointer to look at")]
                // SAFETY: the caller keeps the contract of the C library's function.
                let call = unsafe { $call };
                let next = next::$name.load(core::sync::atomic::Ordering::Relaxed);
                $crate::interpose::calls::interposed_io(call, move || {
                    // SAFETY: the address is that of the C library's function of this name, or of the one above, which
                    // have this type. The caller keeps its contract.
                    unsafe { core::mem::transmute::<*mut (), Function>(next)($($argument),*) }
                })
            })*
        }

        /// The functions of this file, with their names.
        #[cfg(not(target_feature = "crt-static"))]
        pub(super) static NEXT: &[(&core::sync::atomic::AtomicPtr<()>, &core::ffi::CStr)] = &[
            $((&next::$name, $crate::interpose::define::name(concat!(stringify!($name), "\0"))),)*
        ];

        $(
            /// The function of this name in the C library.
            ///
            /// # Safety
            /// As for the C library's function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // Addresses are read from the global offset table, because in a shared library they may belong to
                // another object. Linkers relax this to direct addresses if they can.
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "endbr64",
                    "mov rax, [rip + {listeners}@GOTPCREL]",
                    "test dword ptr [rax], {of_calls}",
                    "jne 3f",
                    "2:",
                    "mov rax, [rip + {next}@GOTPCREL]",
                    "jmp [rax]",
                    "3:",
                    $crate::interpose::anywhere::enter_unless_anywhere!("{watched}"),
                    "jmp 2b",
                    ".cfi_endproc",
                    listeners = sym rtprof_runtime::hook::listeners::LISTENERS,
                    of_calls = const rtprof_runtime::hook::listeners::OF_CALLS,
                    anywhere = const rtprof_runtime::hook::listeners::CANCELLED_ANYWHERE,
                    is_anywhere = sym $crate::interpose::anywhere::is_anywhere,
                    watched = sym watched::$name,
                    next = sym next::$name,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    // `bti c`, as a number, for assemblers that do not know the name.
                    "hint #34",
                    "adrp x16, :got:{listeners}",
                    "ldr x16, [x16, :got_lo12:{listeners}]",
                    "ldr w17, [x16]",
                    "tst w17, {of_calls}",
                    "b.eq 2f",
                    $crate::interpose::anywhere::enter_unless_anywhere!("{watched}"),
                    "2:",
                    "adrp x16, :got:{next}",
                    "ldr x16, [x16, :got_lo12:{next}]",
                    "ldr x16, [x16]",
                    "br x16",
                    ".cfi_endproc",
                    listeners = sym rtprof_runtime::hook::listeners::LISTENERS,
                    of_calls = const rtprof_runtime::hook::listeners::OF_CALLS,
                    anywhere = const rtprof_runtime::hook::listeners::CANCELLED_ANYWHERE,
                    is_anywhere = sym $crate::interpose::anywhere::is_anywhere,
                    watched = sym watched::$name,
                    next = sym next::$name,
                );
            }
        )*
    };
}

/// Defines functions like [`interposed`], for which all calls count as [`Call::System`](super::calls::Call::System),
/// and whose arguments are those of the system call:
///
/// ```text
///   fn name(argument: Type, ..) -> Type = SYS_name;
/// ```
macro_rules! interposed_as_system {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $number:ident;)*) => {
        $crate::interpose::define::interposed! {
            $(fn $name($($argument: $type),*) -> $result:
                $crate::interpose::calls::Call::System,
                => $crate::interpose::define::kernel!($number, $($argument),*);)*
        }
    };
}

/// Converts a name that ends in a NUL byte.
#[cfg(not(target_feature = "crt-static"))]
pub(super) const fn name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends in its only zero"),
    }
}

/// Makes the functions of a file forward to the C library's definitions, as far as they exist.
#[cfg(not(target_feature = "crt-static"))]
pub(super) fn find(functions: &[(&AtomicPtr<()>, &CStr)]) {
    for (next, name) in functions {
        // SAFETY: the name ends in a NUL byte.
        let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let mut found = find(name);
        // Musl has one function of each kind, without the number.
        let plain = name.to_bytes_with_nul().strip_suffix(b"64\0");
        if let Some(plain) = plain
            && found.is_null()
        {
            let mut short = [0; 16];
            short[..plain.len()].copy_from_slice(plain);
            found = CStr::from_bytes_until_nul(&short).map_or(found, find);
        }
        if !found.is_null() {
            next.store(found.cast(), Ordering::Relaxed);
        }
    }
}

/// Makes a system call with these arguments.
macro_rules! kernel {
    ($number:ident $(, $argument:expr)* $(,)?) => {{
        let mut arguments = [0; 6];
        let mut rest = arguments.iter_mut();
        $(if let Some(place) = rest.next() {
            *place = $crate::interpose::define::Word::word($argument);
        })*
        $crate::interpose::forward::system_call(libc::$number, arguments)
    }};
}

pub(super) use {interposed, interposed_as_system, kernel};
