//! Files in which the kernel tells about this process.
//!
//! By the thread that asks: `/proc/self` is the directory of the main thread. When that has ended and others run on
//! (`pthread_exit` in `main`), `/proc/self/maps` is empty and `/proc/self/exe` leads nowhere.

/// A link to the file that was executed. It can be opened when another file is at its path, or none.
pub const EXECUTABLE: &str = "/proc/thread-self/exe";
/// What is mapped, a line for each range.
pub const MAPS: &str = "/proc/thread-self/maps";
/// Names and numbers, a line for each: of this thread, and of the process (`VmRSS`, `VmHWM`, `Threads`).
pub const STATUS: &str = "/proc/thread-self/status";
