//! A team of threads for the sides of a measurement, and the cores that they run on.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

/// The job that every member runs, with its number.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

/// Threads that live as long as the process: with fresh threads every measurement would include a thread's start, its
/// first stack and its first event.
pub struct Team {
    members: Vec<(Sender<Job>, Receiver<()>)>,
    cores: Vec<usize>,
}

impl Team {
    /// Starts `size` threads.
    pub fn start(size: usize) -> Self {
        Self { members: (0..size).map(member).collect(), cores: allowed_cores() }
    }

    /// Runs `job` on the first `size` members, with this placement, until all of them have returned.
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

/// The cores on which the members of a team run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All on one core. One thread then goes on only while the other sleeps, so that the times of both add up, and no
    /// core has to be woken: by far the least noise.
    OneCore,
    /// Each on a separate core; cores are shared if there are too few.
    Apart,
    /// Any core, as the kernel chooses.
    Anywhere,
}

impl Placement {
    /// Returns the word for a request.
    pub fn word(self) -> &'static str {
        match self {
            Self::OneCore => "one-core",
            Self::Apart => "apart",
            Self::Anywhere => "anywhere",
        }
    }

    /// Parses the word that [`Placement::word`] returns.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::OneCore, Self::Apart, Self::Anywhere].into_iter().find(|place| place.word() == word)
    }

    /// Binds the current thread to the cores of this member of a team.
    pub fn take(self, member: usize) {
        static CORES: OnceLock<Vec<usize>> = OnceLock::new();
        // The cores must be read on a thread that is not bound to a core yet, or they would be that core alone; the
        // first call comes from such a thread.
        stay_on(&self.cores_of(member, CORES.get_or_init(allowed_cores)));
    }

    fn cores_of(self, member: usize, cores: &[usize]) -> Vec<usize> {
        match self {
            // The last core: the first one also serves most interrupts.
            Self::OneCore => cores[cores.len() - 1..].to_vec(),
            Self::Apart => vec![cores[member % cores.len()]],
            Self::Anywhere => cores.to_vec(),
        }
    }
}

/// Returns the cores that this process may use; read before any thread is bound to a core.
fn allowed_cores() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes at most the given number of bytes, the size of the set.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0;
    assert!(!failed, "the kernel does not tell which cores there are: {}", std::io::Error::last_os_error());
    // SAFETY: all numbers are below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Binds this thread to some cores. Panics on failure, because a figure from another core than its row says would be
/// wrong.
fn stay_on(cores: &[usize]) {
    // SAFETY: an all-zero set is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        // SAFETY: the numbers come from `allowed_cores`, so they are below the size of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the call only reads the set, a local.
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
