//! What hostile programs do. Each function is one round, and returns when nothing of it is left.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::pipe;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use rtprof::task::Instrument;
use rtprof::{goroutine_profile, trace};
use test_support::contention::thread_id;
use test_support::library::{Library, VARIANTS, libraries, library};
use test_support::signals::{block, set_of, unblock};
use test_support::{fork, until};
use tokio::runtime::Builder;

use super::sums;
use crate::{hostile_cancel, hostile_handlers};

type Call = unsafe extern "C-unwind" fn(*mut c_void);
type IsLeft = unsafe extern "C" fn(Call, *mut c_void) -> c_int;

unsafe extern "C-unwind" {
    // As in libc, but an unwinding may leave it. (Not `read`: libc's, which is used below, may not unwind, and optimised code has
    // one declaration of both.)
    fn recv(socket: c_int, to: *mut c_void, size: usize, flags: c_int) -> isize;
}

struct Built {
    callbacks: Vec<PathBuf>,
    jumps: PathBuf,
}

static BUILT: OnceLock<Built> = OnceLock::new();
static IS_LEFT: OnceLock<IsLeft> = OnceLock::new();

fn handling() -> c_int {
    libc::SIGRTMIN() + 3
}

fn ticking() -> c_int {
    libc::SIGRTMIN() + 4
}

fn read_by_descriptor() -> c_int {
    libc::SIGRTMIN() + 5
}

fn waited_for() -> c_int {
    libc::SIGRTMIN() + 6
}

/// Compiles the libraries, before the child starts.
pub(super) fn build(test: &str) {
    let built =
        Built { callbacks: libraries(test), jumps: library(test, include_str!("../../unmodified/jumps.c")) };
    assert!(BUILT.set(built).is_ok(), "once");
}

fn on_signal(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: an all-zero `sigaction` is valid; the callers pass handlers.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // The alternate stack of a thread has no room for two handlers of the program.
        action.sa_mask = set_of(&[ticking()]);
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

/// Installs the handlers.
pub(super) fn install() {
    let jumps = Library::open(&BUILT.get().expect("they were built").jumps);
    // SAFETY: the library has this function, of this type, and stays loaded.
    IS_LEFT.get_or_init(|| unsafe { std::mem::transmute(jumps.symbol(c"is_left_by_jump")) });
    on_signal(libc::SIGUSR1, jumps.symbol(c"jump").addr(), 0);
    std::mem::forget(jumps);
    on_signal(libc::SIGUSR2, throws as *const () as usize, 0);
    on_signal(handling(), hostile_handlers::computes as *const () as usize, libc::SA_ONSTACK);
    on_signal(ticking(), ticks as *const () as usize, libc::SA_RESTART | libc::SA_SIGINFO);
}

pub(super) fn threads_begin_and_end() {
    let stds: Vec<_> = (0..4).map(|_| spawn(|| drop(black_box(vec![1_u8; 100])))).collect();
    let ours: Vec<_> = (0..4).map(|_| rtprof::thread::spawn(|| drop(black_box(vec![1_u8; 100])))).collect();
    stds.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    ours.into_iter().for_each(|thread| thread.join().expect("it ends well"));
}

pub(super) fn threads_are_cancelled() {
    // The handler waits, so a cancellation would begin in it and could not leave it.
    block(&set_of(&[ticking()]));
    let (silent, _writer) = pipe().expect("there are descriptors");
    hostile_cancel::begin_and_cancel(hostile_cancel::computes, -1);
    hostile_cancel::begin_and_cancel(hostile_cancel::reads, silent.as_raw_fd());
}

/// Receives from a socket at which nothing arrives.
unsafe extern "C-unwind" fn receives_for_ever(socket: *mut c_void) {
    let mut byte = 0_u8;
    loop {
        // SAFETY: writes to a local.
        unsafe { recv(socket.addr() as c_int, (&raw mut byte).cast(), 1, 0) };
    }
}

/// Lets this thread wait in [`receives_for_ever`], which `leave` calls and which is left by the handler of the signal.
fn left_by(signal: c_int, leave: impl FnOnce(*mut c_void)) {
    let (silent, _far) = UnixStream::pair().expect("there are descriptors");
    let (own, socket) = (thread_id(), silent.as_raw_fd());
    let in_call = format!("{} {socket:#x} ", libc::SYS_recvfrom);
    scope(|scope| {
        scope.spawn(move || {
            let call = || std::fs::read_to_string(format!("/proc/self/task/{own}/syscall"));
            until("it waits", || call().expect("Linux tells").starts_with(&in_call));
            // SAFETY: a plain system call.
            assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), own, signal) }, 0);
        });
        leave(std::ptr::without_provenance_mut(socket as usize));
    });
    // The thread is recorded as before.
    sums::some_waits();
}

pub(super) fn jumps_out_of_a_wait() {
    let is_left = IS_LEFT.get().expect("it was installed");
    // SAFETY: the call has nothing to drop.
    left_by(libc::SIGUSR1, |socket| assert_eq!(unsafe { is_left(receives_for_ever, socket) }, 1));
}

extern "C-unwind" fn throws(_: c_int) {
    resume_unwind(Box::new(()));
}

pub(super) fn unwinds_out_of_a_wait() {
    left_by(libc::SIGUSR2, |socket| {
        // SAFETY: the socket is open.
        let left = catch_unwind(AssertUnwindSafe(|| unsafe { receives_for_ever(socket) }));
        // The signal is blocked in its handler.
        unblock(&set_of(&[libc::SIGUSR2]));
        assert!(left.is_err());
    });
}

/// Taken for reading while libraries are loaded and unloaded. A child that is forked in the middle of that could load none,
/// with rtprof and without.
static LOADING: RwLock<()> = RwLock::new(());

#[inline(never)]
extern "C" fn called_back(_: *mut c_void) {
    black_box((1..20).map(|size| vec![0_u8; size * 50]).collect::<Vec<_>>());
}

pub(super) fn loads_and_unloads() {
    let callbacks = &BUILT.get().expect("they were built").callbacks;
    for round in 0..VARIANTS {
        let _loading = LOADING.read().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = [round, (round * 3 + 1) % VARIANTS].map(|at| Library::open(&callbacks[at]));
        first.call_back(called_back);
        drop(first);
        second.call_back(called_back);
    }
}

/// Handles signals on an alternate stack of the size of std's.
pub(super) fn handles_on_a_small_stack() {
    let mut memory = vec![0_u8; 8 << 10];
    let own = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the stack is this thread's own until the second call, and no handler runs on it then.
    unsafe {
        let mut before = zeroed();
        assert_eq!(libc::sigaltstack(&raw const own, &raw mut before), 0);
        (0..5).for_each(|_| assert_eq!(libc::raise(handling()), 0));
        assert_eq!(libc::sigaltstack(&raw const before, null_mut()), 0);
    }
}

static TICKS: AtomicI64 = AtomicI64::new(0);

/// Waits a little on whichever thread it interrupts.
extern "C" fn ticks(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    TICKS.fetch_add(1, Relaxed);
    // SAFETY: the function may be called in handlers, and `errno` is restored.
    unsafe {
        let errno = *libc::__errno_location();
        libc::poll(null_mut(), 0, 1);
        *libc::__errno_location() = errno;
    }
}

/// A timer signals the process.
pub(super) fn has_a_timer() {
    let before = TICKS.load(Relaxed);
    // SAFETY: all-zero values are valid, and the calls read and write locals.
    unsafe {
        let (mut event, mut timer): (libc::sigevent, libc::timer_t) = (zeroed(), zeroed());
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = ticking();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let period = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
        let setting = libc::itimerspec { it_interval: period, it_value: period };
        assert_eq!(libc::timer_settime(timer, 0, &raw const setting, null_mut()), 0);
        until("it ticks", || TICKS.load(Relaxed) >= before + 10);
        assert_eq!(libc::timer_delete(timer), 0);
    }
}

/// Reads as many signals as were sent, and no other, from a descriptor and by `sigwaitinfo`.
pub(super) fn reads_signals() {
    const COUNT: i32 = 5;
    let signals = [read_by_descriptor(), waited_for()];
    block(&set_of(&signals));
    // SAFETY: all-zero values are valid, and the calls read and write locals.
    unsafe {
        let sets = signals.map(|signal| set_of(&[signal]));
        let descriptor = libc::signalfd(-1, &raw const sets[0], libc::SFD_CLOEXEC);
        assert!(descriptor >= 0);
        for value in 1..=COUNT {
            for signal in signals {
                let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value as usize) };
                assert_eq!(libc::pthread_sigqueue(libc::pthread_self(), signal, value), 0);
            }
        }
        for value in 1..=COUNT {
            let (mut read, mut waited): (libc::signalfd_siginfo, libc::siginfo_t) = (zeroed(), zeroed());
            let size = size_of_val(&read);
            assert_eq!(libc::read(descriptor, (&raw mut read).cast(), size), size as isize);
            assert_eq!((read.ssi_signo as c_int, read.ssi_int), (signals[0], value));
            let signal = loop {
                match libc::sigwaitinfo(&raw const sets[1], &raw mut waited) {
                    -1 => assert_eq!(*libc::__errno_location(), libc::EINTR),
                    signal => break signal,
                }
            };
            assert_eq!((signal, waited.si_value().sival_ptr.addr() as i32), (signals[1], value));
        }
        libc::close(descriptor);
    }
}

/// Forks children that go on with all of it, one of them with another program.
pub(super) fn forks() {
    fn between_loads() -> c_int {
        let _none = LOADING.write().unwrap_or_else(PoisonError::into_inner);
        fork::fork()
    }
    fork::in_a_child_by(between_loads, "a child that is profiled", || {
        let before = made_by_child();
        let (send, receive) = channel();
        let thread = spawn(move || {
            child_makes();
            send.send(()).expect("it is received");
        });
        receive.recv().expect("it is sent");
        thread.join().expect("it ends well");
        assert_eq!(made_by_child() - before, 100);
    });
    fork::in_a_child_by(between_loads, "a child that becomes another program", || {
        spawn(|| {
            loop {
                goroutine_profile();
            }
        });
        sleep(Duration::from_millis(1));
        panic!("{}", Command::new("true").exec());
    });
}

/// The size of the objects that children make, and no other code.
const CHILDS: usize = 1234;

fn child_makes() {
    (0..100).for_each(|_| drop(black_box(Box::new([1_u8; CHILDS]))));
}

/// Returns how many of these objects were recorded. Without names: a storm of minutes has so many stacks that under a sanitizer
/// the names of all of them take longer than a child has.
fn made_by_child() -> i64 {
    let records = rtprof::mem_profile(true);
    let of_child = records.iter().filter(|record| record.alloc_bytes == record.alloc_objects * CHILDS as i64);
    of_child.map(|record| record.alloc_objects).sum()
}

pub(super) fn opens_regions() {
    let task = trace::Task::new("deep");
    let mut regions: Vec<_> = (0..2000).map(|_| trace::start_region("deep")).collect();
    while regions.pop().is_some() {}
    drop(task);
}

/// Tasks that end well, that are aborted, and that panic.
pub(super) fn polls_tasks() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("there is room");
    runtime.block_on(async {
        let sleeps = |millis| async move { tokio::time::sleep(Duration::from_millis(millis)).await };
        let well: Vec<_> = (0..20).map(|n| tokio::spawn(sleeps(n % 3).instrument_named("well"))).collect();
        let aborted: Vec<_> =
            (0..20).map(|_| tokio::spawn(sleeps(100_000).instrument_named("aborted"))).collect();
        let panics = || async {
            tokio::task::yield_now().await;
            resume_unwind(Box::new(()));
        };
        let panicking: Vec<_> = (0..20).map(|_| tokio::spawn(panics().instrument_named("panics"))).collect();
        for task in well {
            task.await.expect("it ends well");
        }
        for task in aborted {
            task.abort();
            assert!(task.await.expect_err("it does not end by itself").is_cancelled());
        }
        for task in panicking {
            assert!(task.await.expect_err("it panics").is_panic());
        }
    });
}
