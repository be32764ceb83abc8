//! Paths of the files in which the kernel describes this process.
//!
//! They use the calling thread's directory: `/proc/self` is the directory of the main thread. When the main thread has
//! ended and others still run (`pthread_exit` in `main`), `/proc/self/maps` is empty and `/proc/self/exe` leads
//! nowhere.

/// A link to the executed file. It can be opened even when another file, or none, is at its path.
pub const EXECUTABLE: &str = "/proc/thread-self/exe";

/// Returns the name of the executed file, without its directory; empty if it cannot be read. Allocates.
pub fn program() -> String {
    let path = std::fs::read_link(EXECUTABLE).unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The mappings, a line for each range.
pub(crate) const MAPS: &str = "/proc/thread-self/maps";
/// Names and values, one per line: of this thread, and of the process (`VmRSS`, `VmHWM`, `Threads`).
pub const STATUS: &str = "/proc/thread-self/status";
