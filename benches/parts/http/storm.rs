//! The clients of a storm: `part-storm ADDRESS CLIENTS SECONDS`. Prints how many requests of the well-behaved half were
//! answered, refused, left unanswered, and answered wrongly.

use std::time::Duration;

use rtprof_benches::storm::storm;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The clients stand for other machines, so they get only the time that no other process wants.
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

/// Raises the limit of descriptors to `most`, where the system allows it.
fn open_files(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the call reads the limit, a local.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}
