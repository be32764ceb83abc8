//! Waits whose length is known, and what the block and mutex profiles say of them.
//!
//! A test makes threads wait for each other and compares with the times it has seen itself. A wait begins
//! between the instant before the thread asked for the lock and the instant at which the kernel was seen to
//! have it asleep; it ends between the instants before and after the unlock. So a profile's number lies in an
//! interval that is exact on the busiest machine, where a fixed length of time would be wrong.

use std::cell::RefCell;
use std::iter::Sum;
use std::ops::{Add, Mul};
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use super::Background;
use super::profile::{Profile, Sample};
use super::random::Random;

/// Every wait and every contended unlock from here on.
pub(crate) fn record_everything() {
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);
}

pub(crate) fn record_nothing() {
    rtprof::set_block_profile_rate(0);
    rtprof::set_mutex_profile_fraction(0);
}

/// Switches both profiles on and off until the background work ends.
fn switch_all_the_time(background: &Background) {
    let random = RefCell::new(Random::new(1));
    background.repeat(|| {
        let mut random = random.borrow_mut();
        rtprof::set_block_profile_rate(random.below(2) as u64);
        rtprof::set_mutex_profile_fraction(random.below(2) as i64);
        sleep(Duration::from_micros(random.below(300) as u64));
    });
}

/// What must not be the first function of a stack: the user's own is.
const MACHINERY: [&str; 5] = ["rtprof_", "lock_api", "parking_lot", "core::", "std::"];
/// But this, which says that many threads needed a cache for unwinding at once.
const NOT_CAPTURED: &str = "stack_not_captured";

/// The block or mutex profile as it is written, with what holds for every one of them checked.
pub(crate) fn written(name: &str) -> Profile {
    let profile = written_unmodified(name);
    // Where std's own waits are seen they are in there too.
    for sample in profile.samples().into_iter().filter(|_| !cfg!(feature = "interpose")) {
        let leaf = &sample.frames[0].function;
        assert!(!is_machinery(leaf), "{name}: {leaf} is no function of the user's: {:#?}", sample.frames);
    }
    profile
}

fn is_machinery(leaf: &str) -> bool {
    MACHINERY.iter().any(|krate| leaf.trim_start_matches('<').starts_with(krate))
        && !leaf.contains(NOT_CAPTURED)
}

/// Whether a wait was one of std's, which the test's own threads make.
fn is_stds(sample: &Sample) -> bool {
    let leaf = &sample.frames[0].function;
    is_machinery(leaf) || leaf.starts_with("pthread_")
}

/// As [`written`], of waits in locks that are not ours: their functions are part of the stack.
pub(crate) fn written_unmodified(name: &str) -> Profile {
    let mut bytes = Vec::new();
    let profile = rtprof::pprof::lookup(name).expect("it is built in");
    profile.write_to(&mut bytes, 0).expect("a vector takes everything");
    let profile = Profile::read(&bytes);
    assert_eq!(profile.sample_types(), [("contentions", "count"), ("delay", "nanoseconds")]);
    for sample in profile.samples() {
        let leaf = &sample.frames[0].function;
        let is_ours = leaf.trim_start_matches('<').starts_with("rtprof_") && !leaf.contains(NOT_CAPTURED);
        assert!(!is_ours, "{name}: {leaf} is ours: {:#?}", sample.frames);
        // The count is a divisor. An hour is more than any test takes: the difference of two swapped instants
        // is centuries.
        assert!(sample.values[0] >= 1, "{name}: no waits at {leaf}");
        assert!((0..3_600_000_000_000).contains(&sample.values[1]), "{name}: {} ns", sample.values[1]);
    }
    profile
}

/// How many waits and how many nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waits {
    pub(crate) count: i64,
    pub(crate) nanos: i64,
}

pub(crate) const NONE: Waits = Waits { count: 0, nanos: 0 };

/// All that the mutex profile says; one profile costs half of both.
pub(crate) fn charged_in_all() -> Waits {
    waits(&written("mutex"), "", true)
}

/// Both profiles at one time.
pub(crate) struct Seen {
    block: Profile,
    mutex: Profile,
    without_stds: bool,
}

impl Seen {
    pub(crate) fn now() -> Self {
        Self { block: written("block"), mutex: written("mutex"), without_stds: true }
    }

    /// As [`Seen::now`], where locks are seen that are not ours.
    pub(crate) fn unmodified() -> Self {
        Self { block: written_unmodified("block"), mutex: written_unmodified("mutex"), without_stds: false }
    }

    /// What the block profile says of stacks with a function of this name in them; of all with "".
    pub(crate) fn blocked(&self, function: &str) -> Waits {
        waits(&self.block, function, self.without_stds)
    }

    /// The samples of the block profile whose stack has a function of this name.
    pub(crate) fn samples_blocked(&self, function: &str) -> Vec<Sample> {
        let has_it = |sample: &Sample| sample.frames.iter().any(|frame| is_named(&frame.function, function));
        self.block.samples().into_iter().filter(has_it).collect()
    }

    /// What the mutex profile says of stacks with a function of this name in them; of all with "".
    pub(crate) fn charged(&self, function: &str) -> Waits {
        waits(&self.mutex, function, self.without_stds)
    }
}

fn waits(profile: &Profile, function: &str, without_stds: bool) -> Waits {
    let mut sum = NONE;
    for sample in profile.samples() {
        if without_stds && is_stds(&sample) {
            continue;
        }
        if function.is_empty() || sample.frames.iter().any(|frame| is_named(&frame.function, function)) {
            sum.count += sample.values[0];
            sum.nanos += sample.values[1];
        }
    }
    sum
}

/// Whether a path has this segment: `holder` in `test::holder::<T>`, but not in `test::a_holder`.
fn is_named(path: &str, function: &str) -> bool {
    path.split("::").any(|segment| segment == function)
}

/// The name of the innermost function of each sample, without path and types.
pub(crate) fn leaves(profile: &Profile) -> Vec<String> {
    let leaf = |sample: Sample| {
        let path = sample.frames[0].function.split("::<").next().expect("a split has a part").to_owned();
        path.rsplit("::").next().expect("so has this").to_owned()
    };
    profile.samples().into_iter().filter(|sample| !is_stds(sample)).map(leaf).collect()
}

/// A length of time, between two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl About {
    /// The profiler's clock is measured against the system's, which is itself corrected by up to 0.05 %; a
    /// nanosecond is cut off for each record.
    pub(crate) fn contains(self, nanos: i64) -> bool {
        let slack = |length: Duration| (length / 1000 + Duration::from_micros(2)).as_nanos() as i64;
        let (least, most) = (self.least.as_nanos() as i64, self.most.as_nanos() as i64);
        nanos >= least - slack(self.least) && nanos <= most + slack(self.most)
    }

    #[track_caller]
    pub(crate) fn check(self, what: &str, nanos: i64) {
        assert!(self.contains(nanos), "{what}: {nanos} ns are not within {self:?}");
    }
}

impl Add for About {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least + other.least, most: self.most + other.most }
    }
}

impl Mul<u32> for About {
    type Output = Self;

    fn mul(self, times: u32) -> Self {
        Self { least: self.least * times, most: self.most * times }
    }
}

impl Sum for About {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// Has this thread wait in vain, and says how long a profile may show it waiting.
///
/// The deadline is counted from before the wait. What lies between is the time for which the thread ran, or stood in
/// line for a core: the kernel keeps account of both.
pub(crate) fn in_vain(timeout: Duration, wait: impl FnOnce(Duration)) -> About {
    let (began, before) = (Instant::now(), awake(thread_id()));
    wait(timeout);
    let most = began.elapsed();
    About { least: timeout.saturating_sub(awake(thread_id()) - before), most }
}

/// For how long a thread was not asleep in its life: it ran, or it waited for a core. Of a thread that runs, its current
/// time slice may be missing.
pub(crate) fn awake(thread: i32) -> Duration {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("Linux tells of a thread that lives");
    let nanos = text.split_whitespace().take(2).map(|word| word.parse::<u64>().expect("a number"));
    Duration::from_nanos(nanos.sum())
}

/// An instant, between two: that of a wake inside an unlock, or that at which a thread began to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    before: Instant,
    after: Instant,
}

impl Moment {
    /// Some instant of this call.
    pub(crate) fn of(call: impl FnOnce()) -> Self {
        let before = Instant::now();
        call();
        Self { before, after: Instant::now() }
    }

    pub(crate) fn now() -> Self {
        Self::of(|| ())
    }

    /// How long after `earlier` this is.
    pub(crate) fn since(self, earlier: Self) -> About {
        let least = self.before.saturating_duration_since(earlier.after);
        About { least, most: self.after.saturating_duration_since(earlier.before) }
    }
}

/// A thread that waits.
pub(crate) struct Waiter<'scope, T> {
    pub(crate) thread: ScopedJoinHandle<'scope, T>,
    /// When its wait began.
    pub(crate) began: Moment,
}

/// Starts a thread of std that waits in `body` before it does anything else, and returns when it sleeps.
pub(crate) fn queue<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Waiter<'scope, T> {
    let (send, receive) = mpsc::channel();
    let thread = scope.spawn(move || {
        send.send((thread_id(), Instant::now())).expect("the test listens");
        body()
    });
    let (id, before) = receive.recv().expect("the thread has begun");
    wait_until_asleep(id);
    Waiter { thread, began: Moment { before, after: Instant::now() } }
}

/// The kernel's number of this thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: a plain system call.
    unsafe { libc::gettid() }
}

/// Returns when the thread was asleep for 2 ms without a break: for a lock, and not for a page or the like.
///
/// Fails at once if the thread has ended.
#[track_caller]
pub(crate) fn wait_until_asleep(thread: i32) {
    let started = Instant::now();
    let mut last = None;
    loop {
        let now = sleep_number(thread);
        if now.is_some() && now == last {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "thread {thread} does not wait");
        last = now;
        sleep(Duration::from_millis(2));
    }
}

/// Which sleep of its life a thread is in, if it is in one.
#[track_caller]
pub(crate) fn sleep_number(thread: i32) -> Option<u64> {
    let status = match std::fs::read_to_string(format!("/proc/self/task/{thread}/status")) {
        Ok(status) => status,
        Err(error) => panic!("thread {thread} has ended and not waited: {error}"),
    };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_asleep = field("State:")?.starts_with('S');
    is_asleep.then(|| field("voluntary_ctxt_switches:")?.parse().ok()).flatten()
}

/// Has `threads` threads use a lock, with everything recorded.
pub(crate) fn recorded<T>(threads: u32, uses: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    record_everything();
    let result = uses();
    assert_plausible(threads, started.elapsed());
    result
}

/// Has `threads` threads use a lock, with profiles switched at every moment of a wait: what is recorded are whole waits,
/// or none.
pub(crate) fn switched<T>(threads: u32, uses: impl FnOnce() -> T) -> T {
    let (background, started) = (Background::default(), Instant::now());
    let result = scope(|scope| {
        let _ends = background.ends_here();
        scope.spawn(|| switch_all_the_time(&background));
        uses()
    });
    assert_plausible(threads, started.elapsed());
    result
}

/// Threads cannot have waited for longer than they were there.
pub(crate) fn assert_plausible(threads: u32, elapsed: Duration) {
    let seen = Seen::now();
    let most = (elapsed * threads).as_nanos() as i64;
    let (blocked, charged) = (seen.blocked(""), seen.charged(""));
    assert!(blocked.nanos <= most && charged.nanos <= most, "{blocked:?} {charged:?} in {most} ns");
    assert!(blocked.count > 0 && charged.count > 0, "{blocked:?} {charged:?}");
}
