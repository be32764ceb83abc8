//! Waits whose length is known, and the block and mutex profiles of them.
//!
//! A test makes threads wait for each other and compares with the times that it has measured itself. A wait begins
//! between the instant before the thread requested the lock and the instant at which the kernel reported it asleep; it
//! ends between the instants before and after the unlock. So a profile's number lies in an interval that is exact on
//! the busiest machine, where a fixed length of time would be wrong.

use std::cell::RefCell;
use std::iter::Sum;
use std::ops::{Add, Mul};
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use crate::profile::{Profile, Sample};
use crate::random::Random;
use crate::recording::is_named;
pub use crate::threads::thread_id;
use crate::{Background, is_interposed, sample_types};

/// Records every wait and every contended unlock from here on.
pub fn record_everything() {
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);
}

pub fn record_nothing() {
    rtprof::set_block_profile_rate(0);
    rtprof::set_mutex_profile_fraction(0);
}

/// Returns the number of events of which one is sampled, according to a profile whose budget has raised the rate: the largest
/// one.
#[track_caller]
pub fn most_raised(profile: &str) -> f64 {
    raised_to(profile).expect("the rate is raised")
}

/// As [`most_raised`]; `None` if the rate was not raised.
pub fn raised_to(profile: &str) -> Option<f64> {
    let mut bytes = Vec::new();
    rtprof::pprof::lookup(profile)
        .expect("it is built in")
        .write_to(&mut bytes, 0)
        .expect("a vector takes all");
    let comments = Profile::read(&bytes).comments();
    let (_, most) = comments.split_once("was one in ")?;
    Some(most.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number follows"))
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

/// Prefixes that the first function of a stack must not have, because it is the user's own function.
const MACHINERY: [&str; 5] = ["rtprof_", "lock_api", "parking_lot", "core::", "std::"];
/// Except this function, which says that many threads needed a cache for unwinding at once.
const NOT_CAPTURED: &str = "stack_not_captured";

/// Returns the block or mutex profile as it is written, after checking the properties of every such profile.
pub fn written(name: &str) -> Profile {
    let profile = written_unmodified(name);
    // With `interpose`, std's own waits are in the profile too.
    if is_interposed() {
        return profile;
    }
    for sample in profile.samples() {
        let leaf = &sample.frames[0].function;
        assert!(!is_machinery(leaf), "{name}: {leaf} is no function of the user's: {:#?}", sample.frames);
    }
    profile
}

fn is_machinery(leaf: &str) -> bool {
    MACHINERY.iter().any(|krate| leaf.trim_start_matches('<').starts_with(krate))
        && !leaf.contains(NOT_CAPTURED)
}

/// Returns whether a wait was one of std's, which the test's own threads make.
fn is_stds(sample: &Sample) -> bool {
    let leaf = &sample.frames[0].function;
    is_machinery(leaf) || leaf.starts_with("pthread_")
}

/// As [`written`], for waits in locks that are not ours: their functions are part of the stack.
fn written_unmodified(name: &str) -> Profile {
    let mut bytes = Vec::new();
    let profile = rtprof::pprof::lookup(name).expect("it is built in");
    profile.write_to(&mut bytes, 0).expect("a vector takes everything");
    let profile = Profile::read(&bytes);
    assert_eq!(profile.sample_types(), sample_types::of(name));
    for sample in profile.samples() {
        let leaf = &sample.frames[0].function;
        let is_ours = leaf.trim_start_matches('<').starts_with("rtprof_") && !leaf.contains(NOT_CAPTURED);
        assert!(!is_ours, "{name}: {leaf} is ours: {:#?}", sample.frames);
        // The count is a divisor. A thousand hours are more than all threads of a test wait; the difference of two swapped
        // instants would be centuries.
        assert!(sample.values[0] >= 1, "{name}: no waits at {leaf}");
        assert!((0..3_600_000_000_000_000).contains(&sample.values[1]), "{name}: {} ns", sample.values[1]);
    }
    profile
}

/// The number of waits, and their nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    pub count: i64,
    pub nanos: i64,
}

pub const NONE: Waits = Waits { count: 0, nanos: 0 };

/// Returns the totals of the mutex profile alone; this costs half as much as both profiles.
pub fn charged_in_all() -> Waits {
    waits(&written("mutex"), "", true)
}

/// Both profiles at one moment.
pub struct Seen {
    block: Profile,
    mutex: Profile,
    without_stds: bool,
}

impl Seen {
    pub fn now() -> Self {
        Self { block: written("block"), mutex: written("mutex"), without_stds: true }
    }

    /// As [`Seen::now`], if waits in locks that are not ours are recorded.
    pub fn unmodified() -> Self {
        Self { block: written_unmodified("block"), mutex: written_unmodified("mutex"), without_stds: false }
    }

    /// Returns the waits in the block profile whose stacks contain a function of this name; all waits for "".
    pub fn blocked(&self, function: &str) -> Waits {
        waits(&self.block, function, self.without_stds)
    }

    /// Returns the samples of the block profile whose stack contains a function of this name.
    pub fn samples_blocked(&self, function: &str) -> Vec<Sample> {
        let has_it = |sample: &Sample| sample.frames.iter().any(|frame| is_named(&frame.function, function));
        self.block.samples().into_iter().filter(has_it).collect()
    }

    /// Returns the waits in the mutex profile whose stacks contain a function of this name; all waits for "".
    pub fn charged(&self, function: &str) -> Waits {
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

/// Returns the name of the innermost function of each sample, without path and types.
pub fn leaves(profile: &Profile) -> Vec<String> {
    let leaf = |sample: Sample| {
        let path = sample.frames[0].function.split("::<").next().expect("a split has a part").to_owned();
        path.rsplit("::").next().expect("so has this").to_owned()
    };
    profile.samples().into_iter().filter(|sample| !is_stds(sample)).map(leaf).collect()
}

/// A length of time, known to lie between two bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    pub least: Duration,
    pub most: Duration,
}

impl About {
    /// Returns whether the length may be `nanos`. The profiler's clock is calibrated against the system's, which is
    /// itself corrected by up to 0.05 %; each record loses up to a nanosecond.
    pub fn contains(self, nanos: i64) -> bool {
        let slack = |length: Duration| (length / 1000 + Duration::from_micros(2)).as_nanos() as i64;
        let (least, most) = (self.least.as_nanos() as i64, self.most.as_nanos() as i64);
        nanos >= least - slack(self.least) && nanos <= most + slack(self.most)
    }

    #[track_caller]
    pub fn check(self, what: &str, nanos: i64) {
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

/// Makes this thread wait in vain, and returns how long a profile may show it waiting.
///
/// The deadline counts from before the wait. The difference is the time for which the thread ran, or waited for a core:
/// the kernel records both.
pub fn in_vain(timeout: Duration, wait: impl FnOnce(Duration)) -> About {
    let (began, before) = (Instant::now(), awake(thread_id()));
    wait(timeout);
    let most = began.elapsed();
    About { least: timeout.saturating_sub(awake(thread_id()) - before), most }
}

/// Returns how long a thread was not asleep in its life: it ran, or it waited for a core. For a running thread the
/// current time slice may be missing.
pub fn awake(thread: i32) -> Duration {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("Linux tells of a thread that lives");
    let nanos = text.split_whitespace().take(2).map(|word| word.parse::<u64>().expect("a number"));
    Duration::from_nanos(nanos.sum())
}

/// An instant, known to lie between two bounds: that of a wake inside an unlock, or that at which a thread began to
/// wait.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    before: Instant,
    after: Instant,
}

impl Moment {
    /// Runs `call`, and returns the interval in which it ran.
    pub fn of(call: impl FnOnce()) -> Self {
        let before = Instant::now();
        call();
        Self { before, after: Instant::now() }
    }

    pub fn now() -> Self {
        Self::of(|| ())
    }

    /// Returns how long after `earlier` this moment is.
    pub fn since(self, earlier: Self) -> About {
        let least = self.before.saturating_duration_since(earlier.after);
        About { least, most: self.after.saturating_duration_since(earlier.before) }
    }
}

/// A waiting thread.
pub struct Waiter<'scope, T> {
    pub thread: ScopedJoinHandle<'scope, T>,
    /// The moment at which its wait began.
    pub began: Moment,
}

/// Starts a thread of std that waits in `body` before it does anything else, and returns when it sleeps.
pub fn queue<'scope, T: Send + 'scope>(
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

/// Returns when the thread has been asleep for 2 ms without interruption: for a lock, and not for a page or the like.
///
/// Fails at once if the thread has ended.
#[track_caller]
pub fn wait_until_asleep(thread: i32) {
    if let Err(error) = asleep(thread) {
        panic!("thread {thread} has ended and not waited: {error}");
    }
}

/// As [`wait_until_asleep`], for a thread that may be about to end: a joined thread is listed for another moment. Returns
/// `false` if it has ended.
#[track_caller]
pub fn is_asleep_or_gone(thread: i32) -> bool {
    asleep(thread).is_ok()
}

#[track_caller]
fn asleep(thread: i32) -> std::io::Result<()> {
    let started = Instant::now();
    let mut last = None;
    loop {
        let now = number_of_sleep(thread)?;
        if now.is_some() && now == last {
            return Ok(());
        }
        assert!(started.elapsed() < Duration::from_secs(60), "thread {thread} does not wait");
        last = now;
        sleep(Duration::from_millis(2));
    }
}

/// Returns the number of a thread's present sleep; `None` if the thread is not asleep.
#[track_caller]
pub fn sleep_number(thread: i32) -> Option<u64> {
    match number_of_sleep(thread) {
        Ok(number) => number,
        Err(error) => panic!("thread {thread} has ended and not waited: {error}"),
    }
}

fn number_of_sleep(thread: i32) -> std::io::Result<Option<u64>> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_asleep = field("State:").is_some_and(|state| state.starts_with('S'));
    let number = || field("voluntary_ctxt_switches:")?.parse().ok();
    Ok(if is_asleep { number() } else { None })
}

/// Makes `threads` threads use a lock, with everything recorded.
pub fn recorded<T>(threads: u32, uses: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    record_everything();
    let result = uses();
    assert_plausible(threads, started.elapsed());
    result
}

/// Makes `threads` threads use a lock, while profiles are switched on and off at every moment of a wait: waits are
/// recorded whole, or not at all.
pub fn switched<T>(threads: u32, uses: impl FnOnce() -> T) -> T {
    let (background, started) = (Background::default(), Instant::now());
    let result = scope(|scope| {
        let _ends = background.ends_here();
        scope.spawn(|| switch_all_the_time(&background));
        uses()
    });
    assert_plausible(threads, started.elapsed());
    result
}

/// Asserts that threads have not waited for longer than they lived.
pub fn assert_plausible(threads: u32, elapsed: Duration) {
    let seen = Seen::now();
    let most = (elapsed * threads).as_nanos() as i64;
    let (blocked, charged) = (seen.blocked(""), seen.charged(""));
    assert!(blocked.nanos <= most && charged.nanos <= most, "{blocked:?} {charged:?} in {most} ns");
    assert!(blocked.count > 0 && charged.count > 0, "{blocked:?} {charged:?}");
}
