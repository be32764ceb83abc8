//! The moment of hope before a thread goes to sleep.

/// Looks before a thread sleeps for what is seldom held for long, or is there soon.
pub(crate) const SHORT: u32 = 7;

/// Looks again so many times, after pauses that double: 7 looks take two or three microseconds in all, 9 four times as
/// long. Every look takes the lock's cache line from its holder, so more of them would slow down the thread that this
/// one waits for.
///
/// It never yields its core: that would be a wait of unknown length (4 ms if somebody else wants the core) which no
/// profile sees, as the thread is not asleep.
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
