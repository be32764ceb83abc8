//! Bounded spinning before parking.

/// The number of looks for a lock that is seldom held for long, and for messages that arrive soon.
pub(crate) const SHORT: u32 = 7;

/// Calls `busy` up to `looks` times, after pauses that double, until it returns false. 7 looks take two or three
/// microseconds in all, 9 four times as long. Every look takes the lock's cache line from its holder, so more of them
/// would slow down the thread that this one waits for.
///
/// It does not yield the core: that would be a wait of unknown length (4 ms if another thread wants the core) that no
/// profile shows, because the thread is not asleep.
pub(crate) fn spin_while(looks: u32, mut busy: impl FnMut() -> bool) {
    // A model explores the other thread's steps anyway.
    let looks = if cfg!(loom) { 0 } else { looks };
    for look in 0..looks {
        for _ in 0..1 << look {
            core::hint::spin_loop();
        }
        if !busy() {
            return;
        }
    }
}
