//! The registers from which a walk starts.

/// The registers from which a walk starts, all read at one instruction.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    /// The instruction pointer.
    pub(super) ip: usize,
    /// The stack pointer.
    pub(super) sp: usize,
    /// The frame pointer register, whatever it holds.
    pub(super) fp: usize,
    /// The link register.
    #[cfg(target_arch = "aarch64")]
    pub(super) lr: usize,
}

/// Reads the registers of the function that this is inlined into.
#[cfg(all(rtprof_supported, target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn registers() -> Registers {
    let (ip, sp, fp): (usize, usize, usize);
    // SAFETY: reads three registers and has no effect.
    unsafe {
        core::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            ip = out(reg) ip, sp = out(reg) sp, fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    Registers { ip, sp, fp }
}

/// Reads the registers of the function that this is inlined into.
#[cfg(all(rtprof_supported, target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn registers() -> Registers {
    let (ip, sp, fp, lr): (usize, usize, usize, usize);
    // SAFETY: reads four registers and has no effect.
    unsafe {
        core::arch::asm!(
            "adr {ip}, .", "mov {sp}, sp", "mov {fp}, x29", "mov {lr}, x30",
            ip = out(reg) ip, sp = out(reg) sp, fp = out(reg) fp, lr = out(reg) lr,
            options(nomem, nostack, preserves_flags),
        );
    }
    Registers { ip, sp, fp, lr }
}

#[cfg(not(rtprof_supported))]
#[inline(always)]
pub(super) fn registers() -> Registers {
    Registers {
        ip: 0,
        sp: 0,
        fp: 0,
        #[cfg(target_arch = "aarch64")]
        lr: 0,
    }
}
