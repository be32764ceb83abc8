//! `pthread_setcanceltype`: which threads may be cancelled at any instruction, and what follows (`anywhere`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use rtprof_runtime::hook::hidden;
use rtprof_runtime::hook::listeners::{self, LISTENERS};

use super::anywhere::is_anywhere;
use super::forward::{Next, function};

type Set = unsafe extern "C-unwind" fn(c_int, *mut c_int) -> c_int;

/// `PTHREAD_CANCEL_DEFERRED`, in both C libraries: a thread is cancelled in some calls only.
const DEFERRED: c_int = 0;
/// `PTHREAD_CANCEL_ASYNCHRONOUS`
const ASYNCHRONOUS: c_int = 1;

static SET: Next = Next::new();

pub(super) fn find() {
    SET.find(c"pthread_setcanceltype");
}

/// `int pthread_setcanceltype(int, int *)`
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    // A thread notes that it may be cancelled anywhere before it may be, and that it may not when that is over. In between
    // only these instructions run.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "cmp edi, {asynchronous}",
        "jne 3f",
        "mov rax, [rip + {listeners}@GOTPCREL]",
        "cmp dword ptr [rax + {anywhere}], 0",
        "je 2f",
        "call {is_anywhere}",
        "jne 3f",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {begins}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "3:",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "mov ebx, edi",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "je 5f",
        "call rax",
        "4:",
        "cmp ebx, {deferred}",
        "jne 6f",
        "mov ebx, eax",
        "call {ends}",
        "mov eax, ebx",
        "jmp 6f",
        "5:",
        "call {early}",
        "jmp 4b",
        "6:",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        asynchronous = const ASYNCHRONOUS,
        deferred = const DEFERRED,
        listeners = sym LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        is_anywhere = sym is_anywhere,
        begins = sym begins,
        ends = sym ends,
        early = sym early,
        next = sym SET,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, -48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset 29, -48",
        ".cfi_offset 30, -40",
        "stp x19, x1, [sp, 16]",
        ".cfi_offset 19, -32",
        "mov x29, sp",
        "mov w19, w0",
        "cmp w19, {asynchronous}",
        "b.ne 3f",
        "adrp x16, :got:{listeners}",
        "ldr x16, [x16, :got_lo12:{listeners}]",
        "ldr w17, [x16, {anywhere}]",
        "cbz w17, 2f",
        "bl {is_anywhere}",
        "b.ne 3f",
        "2:",
        "bl {begins}",
        "3:",
        "mov w0, w19",
        "ldr x1, [sp, 24]",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbz x16, 5f",
        "blr x16",
        "4:",
        "cmp w19, {deferred}",
        "b.ne 6f",
        "mov w19, w0",
        "bl {ends}",
        "mov w0, w19",
        "b 6f",
        "5:",
        "bl {early}",
        "b 4b",
        "6:",
        "ldr x19, [sp, 16]",
        ".cfi_restore 19",
        "ldp x29, x30, [sp], 48",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore 29",
        ".cfi_restore 30",
        "ret",
        ".cfi_endproc",
        asynchronous = const ASYNCHRONOUS,
        deferred = const DEFERRED,
        listeners = sym LISTENERS,
        anywhere = const listeners::CANCELLED_ANYWHERE,
        is_anywhere = sym is_anywhere,
        begins = sym begins,
        ends = sym ends,
        early = sym early,
        next = sym SET,
    );
}

/// Forwards the call in a constructor of the program that runs before ours has looked the C library's function up.
#[cold]
unsafe extern "C-unwind" fn early(kind: c_int, before: *mut c_int) -> c_int {
    match function!(SET, c"pthread_setcanceltype", Set) {
        // SAFETY: the caller keeps the contract of the C library's function.
        Some(next) => unsafe { next(kind, before) },
        None => libc::EINVAL,
    }
}

/// Notes that the current thread may be cancelled anywhere from now on.
#[cold]
extern "C" fn begins() {
    hidden::set_always(true);
    if let Some(key) = key() {
        // Any value but null. SAFETY: the key is never deleted.
        unsafe { libc::pthread_setspecific(key, (&raw const SET).cast()) };
    }
}

/// Notes that the current thread may not be cancelled anywhere.
#[cold]
extern "C" fn ends() {
    hidden::set_always(false);
    if let Some(key) = listeners::cancelled_anywhere().load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key is never deleted.
        unsafe { libc::pthread_setspecific(key, core::ptr::null()) };
    }
}

/// The key of the C library under which a thread notes that it may be cancelled anywhere. Made by the first such thread, and
/// never deleted. `None` if the program has used up all keys: then the thread's calls are only hidden.
fn key() -> Option<libc::pthread_key_t> {
    let word = listeners::cancelled_anywhere();
    let known = word.load(Ordering::Acquire).checked_sub(1);
    if known.is_some() {
        return known;
    }
    let mut key = 0;
    // SAFETY: the call writes to a local.
    if unsafe { libc::pthread_key_create(&raw mut key, None::<unsafe extern "C" fn(*mut c_void)>) } != 0 {
        return None;
    }
    match word.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(other) => {
            // SAFETY: the key was made here, and no other thread has seen it.
            unsafe { libc::pthread_key_delete(key) };
            other.checked_sub(1)
        }
    }
}
