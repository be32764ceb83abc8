//! The process as the kernel sees it.

use rtprof_runtime::process::own_files;

/// Numbers from `/proc`; `None` if they are not available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    /// Resident bytes.
    pub(crate) resident: Option<u64>,
    /// All threads, the profiler's included.
    pub(crate) threads: Option<u64>,
}

impl Process {
    pub(crate) fn read() -> Self {
        std::fs::read_to_string(own_files::STATUS).map(|status| Self::parse(&status)).unwrap_or_default()
    }

    fn parse(status: &str) -> Self {
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse().ok()
        };
        // The unit is kibibytes, though the kernel calls it kB.
        Self { resident: number("VmRSS").map(|kibibytes| kibibytes << 10), threads: number("Threads") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found() {
        let status = "Name:\tx\nVmRSS:\t    1024 kB\nRssAnon:\t 7 kB\nThreads:\t3\n";
        assert_eq!(Process::parse(status), Process { resident: Some(1 << 20), threads: Some(3) });
        assert_eq!(Process::parse("VmRSS:\tx\n"), Process::default());
    }
}
