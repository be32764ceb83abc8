//! Paths of the files in which the kernel describes this process.
//!
//! They use the calling thread's directory: `/proc/self` is the directory of the main thread. When the main thread has
//! ended and others still run (`pthread_exit` in `main`), `/proc/self/maps` is empty and `/proc/self/exe` leads
//! nowhere.

/// A link to the executed file. It can be opened even when another file, or none, is at its path.
pub const EXECUTABLE: &str = "/proc/thread-self/exe";
/// The mappings, a line for each range.
pub const MAPS: &str = "/proc/thread-self/maps";
/// Names and values, one per line: of this thread, and of the process (`VmRSS`, `VmHWM`, `Threads`).
pub const STATUS: &str = "/proc/thread-self/status";
