//! The main thread's stack near its limit: it grows on demand, so the mapped part does not show how much is left.
//!
//! A sample may be dropped there, and is counted then; the program never dies of it. The program starts itself again
//! for each case, with a limit as set by `ulimit -s`.

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    match std::env::var(linux::LEFT) {
        Ok(left) => linux::sample_with(left.parse().expect("a number of bytes")),
        Err(_) => linux::run_all(),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use test_support::child;
    use test_support::room::{ENOUGH, LEAST, ROUNDS, deeper, given_up, profile, recorded, some_objects};

    pub(crate) const LEFT: &str = "RTPROF_TEST_STACK_LEFT";

    const LIMIT: usize = 512 << 10;
    pub(crate) fn run_all() {
        let lefts = [LEAST, 4 << 10, ENOUGH, 10 << 10, 16 << 10, 24 << 10, 40 << 10, 100 << 10];
        for left in lefts {
            let limit = || {
                let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: LIMIT as u64 };
                // SAFETY: the call reads the local.
                let n = unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const limit) };
                if n == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            };
            let mut command = Command::new(std::env::current_exe().expect("a test knows its own binary"));
            command.env(LEFT, left.to_string());
            // SAFETY: the closure makes one system call.
            unsafe { command.pre_exec(limit) };
            let output = child::finish(&mut command);
            assert!(output.status.success(), "with {left} bytes left: {}", child::report(&output));
            println!("{left} bytes left ... ok");
        }
    }

    pub(crate) fn sample_with(left: usize) {
        rtprof::set_mem_profile_rate(1);
        let low = end_of_stack() - LIMIT;
        deeper(low + left, &some_objects);
        let profile = profile();
        let (shown, lost) = (recorded(&profile, &["with_bytes", "sample_with"]), given_up(&profile));
        assert_eq!(shown + lost, ROUNDS, "{shown} shown, {lost} counted as lost; {}", profile.comments());
        assert!(left < ENOUGH || shown == ROUNDS, "{lost} of {ROUNDS} lost with {left} bytes left");
    }

    /// Returns the end of the stack, from which the limit counts.
    fn end_of_stack() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
        let line = maps.lines().find(|line| line.ends_with("[stack]")).expect("there is a main stack");
        let range = line.split(' ').next().expect("a range");
        usize::from_str_radix(range.split('-').nth(1).expect("two addresses"), 16).expect("hexadecimal")
    }
}
