//! The moment of hope before a thread goes to sleep.

/// Looks again a few times, after pauses that double, for two or three microseconds in all. Every look takes the
/// lock's cache line from its holder, so more of them would slow down whom this thread waits for.
///
/// It never yields its core: that would be a wait of unknown length (4 ms if somebody else wants the core) which no
/// profile sees, as the thread is not asleep.
pub(crate) fn spin_while(mut busy: impl FnMut() -> bool) {
    // A model explores the other thread's steps anyway.
    let looks = if cfg!(loom) { 0 } else { 7 };
    for look in 0..looks {
        for _ in 0..1 << look {
            core::hint::spin_loop();
        }
        if !busy() {
            return;
        }
    }
}
