//! Threads that do the halves of a measurement, and the cores they run on.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

/// What every member runs, told its number.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

/// Threads that live as long as the process: a fresh thread would pay for its first stack, its first event
/// and its own birth inside every measurement.
pub struct Team {
    members: Vec<(Sender<Job>, Receiver<()>)>,
    cores: Vec<usize>,
}

impl Team {
    /// Starts `size` threads.
    pub fn start(size: usize) -> Self {
        Self { members: (0..size).map(member).collect(), cores: allowed_cores() }
    }

    /// Runs `job` on the first `size` members, at this place, until all of them have returned.
    ///
    /// # Panics
    /// When a member panics.
    pub fn run(&self, size: usize, place: Placement, job: impl Fn(usize) + Send + Sync + 'static) {
        let cores = self.cores.clone();
        let job: Job = Arc::new(move |number| {
            stay_on(&place.cores_of(number, &cores));
            job(number);
        });
        let members = &self.members[..size];
        for (orders, _) in members {
            orders.send(Arc::clone(&job)).expect("members live as long as the team");
        }
        for (_, done) in members {
            done.recv().expect("a member panicked");
        }
    }
}

fn member(number: usize) -> (Sender<Job>, Receiver<()>) {
    let (orders, jobs) = channel::<Job>();
    let (done, is_done) = channel();
    thread::spawn(move || {
        for job in jobs {
            job(number);
            if done.send(()).is_err() {
                break;
            }
        }
    });
    (orders, is_done)
}

/// Where the members of a team run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All on one core. A thread then goes on only when the other one sleeps, so that the time of both adds
    /// up, and no core has to be woken: by far the least noise.
    OneCore,
    /// Each on a core of its own, in turns if there are too few.
    Apart,
    /// Where the kernel puts them.
    Anywhere,
}

impl Placement {
    /// As it stands in a request.
    pub fn word(self) -> &'static str {
        match self {
            Self::OneCore => "one-core",
            Self::Apart => "apart",
            Self::Anywhere => "anywhere",
        }
    }

    /// The reverse of [`Placement::word`].
    pub fn parse(word: &str) -> Option<Self> {
        [Self::OneCore, Self::Apart, Self::Anywhere].into_iter().find(|place| place.word() == word)
    }

    /// Puts the current thread where this member of a team would be.
    pub fn take(self, member: usize) {
        static CORES: OnceLock<Vec<usize>> = OnceLock::new();
        // Of a thread that was bound to a core they would be that one alone; the first call comes from one that is not.
        stay_on(&self.cores_of(member, CORES.get_or_init(allowed_cores)));
    }

    fn cores_of(self, member: usize, cores: &[usize]) -> Vec<usize> {
        match self {
            // Not the first one, which also serves most interrupts.
            Self::OneCore => cores[cores.len() - 1..].to_vec(),
            Self::Apart => vec![cores[member % cores.len()]],
            Self::Anywhere => cores.to_vec(),
        }
    }
}

/// The cores that this process may use; read before any thread is bound to one.
fn allowed_cores() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes at most as many bytes as it is told the set has.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0;
    assert!(!failed, "the kernel does not tell which cores there are: {}", std::io::Error::last_os_error());
    // SAFETY: all numbers are below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Binds this thread to some cores. A figure from another place than its row says would be wrong.
fn stay_on(cores: &[usize]) {
    // SAFETY: as in `allowed_cores`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        // SAFETY: the numbers came out of such a set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: reads the set.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0;
    assert!(!failed, "cannot run on cores {cores:?}: {}", std::io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_member_runs_once_where_it_should() {
        let cores = allowed_cores();
        let team = Team::start(3);
        let ran = Arc::new(AtomicUsize::new(0));
        for place in [Placement::OneCore, Placement::Apart, Placement::Anywhere] {
            let (cores, ran) = (cores.clone(), Arc::clone(&ran));
            team.run(2, place, move |number| {
                assert_eq!(allowed_cores(), place.cores_of(number, &cores));
                ran.fetch_add(1 << (8 * number), Ordering::Relaxed);
            });
        }
        assert_eq!(ran.load(Ordering::Relaxed), 0x03_03);
    }
}
