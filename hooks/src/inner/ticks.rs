//! Times in ticks of the processor's counter, whose rate differs between architectures. Models have shorter ones.

/// The shortest time that counts as a sleep, in ticks: about a microsecond. The kernel cannot put a thread to sleep and
/// wake it in less, and a call that does not sleep takes a tenth of it.
pub(crate) const LEAST_SLEEP: u64 = if cfg!(loom) {
    1
} else if cfg!(target_arch = "aarch64") {
    50
} else {
    2000
};

/// For how long unlocks of a mutex may leave the charge to the next unlock, in ticks: about 16 µs on x86-64, and 1 to
/// 43 µs on aarch64, where the rates of counters differ that much.
pub(crate) const MUCH: u32 = if cfg!(loom) {
    3
} else if cfg!(target_arch = "aarch64") {
    1 << 10
} else {
    1 << 15
};
/// Inexact times are kept in units of 2^`COARSE` ticks: about a third of a millisecond on x86-64.
pub(crate) const COARSE: u32 = if cfg!(loom) {
    2
} else if cfg!(target_arch = "aarch64") {
    15
} else {
    20
};
/// For how long a woken thread may not run before another one is woken, in units of `COARSE`: about 10 ms on x86-64.
pub(crate) const LATE: u32 = if cfg!(loom) { 1 } else { 32 };
