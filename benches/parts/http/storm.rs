//! The clients of a storm: `part-storm ADDRESS CLIENTS SECONDS`. Prints how many requests of the well-behaved half were
//! answered, refused, left unanswered, and answered wrongly.

use std::time::Duration;

use rtprof_benches::storm::storm;

/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // They stand for other machines: they get what nobody else wants.
    // SAFETY: a plain system call about this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    open_files(4096);
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: part-storm ADDRESS CLIENTS SECONDS");
    let address = next()?.parse()?;
    let clients = next()?.parse()?;
    let duration = Duration::from_secs(next()?.parse()?);
    let tally = storm(address, clients, duration, PATIENCE)?;
    println!("{} {} {} {}", tally.answered, tally.refused, tally.unanswered, tally.wrong);
    Ok(())
}

/// Lets the process have so many descriptors, where the system allows it.
fn open_files(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit is the call's own for its duration.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}
