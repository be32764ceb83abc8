//! The clients of a storm: `part-storm ADDRESS CLIENTS SECONDS`. Prints how many requests of the well-behaved half were
//! answered, refused, left unanswered, and answered wrongly.

use std::time::Duration;

use rtprof_benches::storm::storm;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // They stand for other machines: they get what nobody else wants.
    // SAFETY: a plain system call about this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: part-storm ADDRESS CLIENTS SECONDS");
    let address = next()?.parse()?;
    let clients = next()?.parse()?;
    let tally = storm(address, clients, Duration::from_secs(next()?.parse()?))?;
    println!("{} {} {} {}", tally.answered, tally.refused, tally.unanswered, tally.wrong);
    Ok(())
}
