//! Threads that cannot be signalled, or do not answer: the known facts about them are reported, with the reason.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rtprof::pprof::lookup;
use rtprof::{GoroutineState, goroutine_profile, set_thread_signals, thread, thread_signals};
use test_support::signals::{self, disposition};
use test_support::{Background, child, fork, rounds, sandbox, skipped, until};

use super::asked::start;
use super::names::{Names, find, wait_for_end_of_search};

fn comments() -> String {
    let mut text = Vec::new();
    lookup("goroutine").expect("it is built in").write_to(&mut text, 1).expect("a vector takes all");
    String::from_utf8(text).expect("it is text")
}

/// Runs `check` beside a thread of std and one of ours that compute, and one of std that waits in a system call.
fn beside_others(check: impl FnOnce(&Background)) {
    let background = &Background::default();
    std::thread::scope(|scope| {
        let _ends = background.ends_here();
        let (mut ends, end) = UnixStream::pair().expect("two sockets");
        let nap = move || ends.read(&mut [0]).is_ok_and(|read| read == 0);
        let busy = || background.repeat(|| ());
        start(scope, "naps", nap);
        start(scope, "busy", busy);
        thread::scope(|scope| {
            let _ends = background.ends_here();
            thread::Builder::new().name("ours".into()).spawn_scoped(scope, busy).expect("a thread");
            // A thread gets its name a moment after it has begun.
            until("all have begun", || ["busy", "ours"].into_iter().all(|name| thread_state(name).is_some()));
            until("it naps", || thread_state("naps") == Some('S'));
            until("rtprof knows it", || find("ours").is_some_and(|ours| ours.created_by != 0));
            check(background);
            drop(end);
        });
    });
}

/// Reads a file of /proc about the thread of this name.
fn thread_file(name: &str, file: &str) -> Option<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc");
    threads.flatten().find_map(|thread| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).ok();
        let is_it = read("comm")?.trim() == name;
        is_it.then(|| read(file))?
    })
}

/// Returns the kernel's state of the thread of this name.
fn thread_state(name: &str) -> Option<char> {
    thread_file(name, "stat")?.rsplit_once(") ")?.1.chars().next()
}

/// Waits until none of the three threads is in the handler any more. A thread that has answered may lose the processor
/// before it has returned; until then it blocks our signal, and does not sleep.
fn wait_until_back() {
    let is_back = |name: &str| {
        let status = thread_file(name, "status").expect("it goes on");
        let mut sets = ["SigPnd:", "SigBlk:"].into_iter();
        sets.all(|set| {
            status.lines().any(|line| line.starts_with(set) && line.ends_with("\t0000000000000000"))
        })
    };
    until("none is in the handler", || ["naps", "busy", "ours"].into_iter().all(is_back));
    until("it naps again", || thread_state("naps") == Some('S'));
}

/// Asserts that all three threads have the frame of this name, and the kernel's state.
#[track_caller]
fn all_are_silent(why: &str) {
    wait_until_back();
    let text = comments();
    let frame = format!("rtprof_runtime::stack::marker::{why}");
    for name in ["naps", "busy", "ours"] {
        let goroutine = find(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(Names::default().of(&goroutine), [&*frame], "{name}");
        let kernel = goroutine.kernel.expect("it is told");
        let (state, waits) =
            if name == "naps" { ('S', GoroutineState::Syscall) } else { ('R', GoroutineState::Running) };
        // A busy thread may wait for a page.
        if name == "naps" || kernel.state == 'R' {
            assert_eq!((kernel.state, goroutine.state), (state, waits), "{name}");
        }
        let told = format!("no stack of thread {} {name:?}, state ", goroutine.thread_id);
        assert!(text.contains(&told), "{told} is not in {text}");
    }
    let dump = rtprof::stack(true);
    let id = find("naps").expect("it is there").thread_id;
    assert!(dump.contains(&format!(": thread {id} \"naps\": S")), "{dump}");
}

#[test]
fn signals_can_be_switched_off() {
    child::isolated("signals_can_be_switched_off", || {
        assert!(thread_signals());
        set_thread_signals(false);
        assert!(!thread_signals());
        beside_others(|_| {
            all_are_silent("thread_signals_are_off");
            set_thread_signals(true);
            let goroutine = find("naps").expect("it is there");
            assert!(goroutine.frames.len() > 2 && goroutine.kernel.is_none(), "{goroutine:?}");
        });
    });
}

static TAKEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take(_: libc::c_int) {
    TAKEN.fetch_add(1, Relaxed);
}

/// The program takes these signals.
fn handle(signals: impl IntoIterator<Item = libc::c_int>) {
    for signal in signals {
        let handler: extern "C" fn(libc::c_int) = take;
        // SAFETY: the handler counts.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signals that are ignored by default, which are taken first.
const IGNORED: [libc::c_int; 2] = [libc::SIGURG, libc::SIGWINCH];

/// The program's handlers receive their own signals, and no other.
#[test]
fn a_program_may_handle_every_signal() {
    child::isolated("a_program_may_handle_every_signal", || {
        beside_others(|_| {
            for signals in [&[][..], &IGNORED[..1], &IGNORED] {
                handle(signals.iter().copied());
                assert!(find("naps").is_some_and(|naps| naps.frames.len() > 2), "without {signals:?}");
            }
            // Our own handler of a real-time signal is installed now.
            handle(libc::SIGRTMIN()..=libc::SIGRTMAX());
            all_are_silent("no_signal_is_free");
            assert_eq!(TAKEN.load(Relaxed), 0);
            // SAFETY: the handler counts.
            unsafe { libc::raise(libc::SIGRTMAX() - 4) };
            assert_eq!(TAKEN.load(Relaxed), 1);
            // A signal that the program gives up is used again.
            // SAFETY: restores the signal's default action.
            unsafe { libc::signal(libc::SIGRTMIN() + 1, libc::SIG_DFL) };
            assert!(find("naps").is_some_and(|naps| naps.frames.len() > 2));
            assert_eq!(TAKEN.load(Relaxed), 1);
        });
    });
}

/// A signal with our number has the effect that it would have without us: it ends the process.
#[test]
fn a_signal_of_someone_else_has_its_default() {
    let test = "a_signal_of_someone_else_has_its_default";
    if child::is(test, "") {
        handle(IGNORED);
        assert!(find("no such thread").is_none());
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            // SAFETY: the call writes to the local.
            let ours = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                action.sa_sigaction != libc::SIG_DFL
            };
            if ours {
                println!("ours is {signal}.");
                // SAFETY: the signal ends the process.
                unsafe { libc::raise(signal) };
            }
        }
    } else if !child::any() {
        use std::os::unix::process::ExitStatusExt as _;
        let output = child::output(test, "", |_| ());
        let text = String::from_utf8_lossy(&output.stdout);
        let signal = output.status.signal().unwrap_or_else(|| panic!("it ends well: {text}"));
        assert!(text.contains(&format!("ours is {signal}.")), "ended by {signal}: {text}");
    }
}

/// The signals are free again after a snapshot, and what others send of them is ignored, as by default.
#[test]
fn signals_are_given_back() {
    child::isolated("signals_are_given_back", || {
        let signals = || IGNORED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        let actions = || signals().map(disposition).collect::<Vec<_>>();
        let before = actions();
        for _ in 0..20 {
            assert!(find("no such thread").is_none());
            IGNORED.into_iter().for_each(|signal| {
                // SAFETY: the signal is ignored.
                unsafe { libc::raise(signal) };
            });
        }
        assert_eq!(actions(), before);
        // A program that has found our handler, and restores it when it needs its own no more.
        let ends = Background::default();
        // SAFETY: all zeros are a valid value.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        std::thread::scope(|scope| {
            let _ends = ends.ends_here();
            scope.spawn(|| ends.repeat(|| drop(goroutine_profile())));
            until("it has found our handler", || {
                // SAFETY: the call writes to a local.
                unsafe { libc::sigaction(libc::SIGURG, std::ptr::null(), &raw mut found) };
                found.sa_sigaction != before[0]
            });
        });
        // SAFETY: the handler is one that was installed before.
        unsafe { libc::sigaction(libc::SIGURG, &raw const found, std::ptr::null_mut()) };
        assert_ne!(actions()[0], before[0]);
        assert!(find("no such thread").is_none());
        assert_eq!(actions(), before, "a snapshot gives it back");
    });
}

const REPLACED: &str = "RTPROF_TEST_REPLACED";

/// A program is replaced by `exec` while snapshots are taken: a signal that is on its way must not end the new program.
#[test]
fn exec_is_survived() {
    for handled in [0, 1] {
        child::isolated_as("exec_is_survived", &handled.to_string(), || {
            let rounds: u32 = std::env::var(REPLACED).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            if rounds == 60 {
                return;
            }
            handle(IGNORED.into_iter().take(handled));
            static TAKEN: AtomicUsize = AtomicUsize::new(0);
            std::thread::spawn(|| {
                loop {
                    drop(goroutine_profile());
                    TAKEN.fetch_add(1, Relaxed);
                }
            });
            until("snapshots are taken", || TAKEN.load(Relaxed) > 3);
            let mut command = Command::new(std::env::current_exe().expect("it has a path"));
            command.args(std::env::args().skip(1)).env(REPLACED, (rounds + 1).to_string());
            panic!("exec: {}", command.exec());
        });
    }
}

/// No signal stays pending for the thread, where the thread's own `sigwait` would find it.
#[test]
fn a_thread_that_blocks_signals_gets_none() {
    child::isolated("a_thread_that_blocks_signals_gets_none", || {
        let background = &Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            let body = || {
                signals::block(&signals::all());
                background.repeat(|| std::thread::sleep(Duration::from_millis(50)));
                // SAFETY: the call writes to the local.
                unsafe {
                    let mut pending: libc::sigset_t = std::mem::zeroed();
                    libc::sigpending(&raw mut pending);
                    (1..=libc::SIGRTMAX())
                        .filter(|&signal| libc::sigismember(&raw const pending, signal) == 1)
                        .count()
                }
            };
            let deaf = start(scope, "deaf", body);
            let is_deaf = || {
                let deaf = find("deaf")?;
                (Names::default().of(&deaf) == ["rtprof_runtime::stack::marker::thread_blocks_signals"])
                    .then_some(deaf)
            };
            until("it blocks them", || is_deaf().is_some());
            let first = is_deaf().expect("it does so on");
            for _ in 0..20 {
                let again = find("deaf").expect("it goes on");
                assert_eq!((again.id, again.thread_id), (first.id, first.thread_id));
                assert!(again.kernel.is_some());
            }
            drop(background.ends_here());
            assert_eq!(deaf.join().expect("it does not panic"), 0, "signals are pending");
        });
    });
}

/// A parent of `vfork` waits, beyond the reach of signals, until its child has ended.
#[test]
fn a_thread_in_an_uninterruptible_wait_is_told_of() {
    child::isolated("a_thread_in_an_uninterruptible_wait_is_told_of", || {
        let (ends, mut end) = std::io::pipe().expect("a pipe");
        let body = move || vfork_until_written(ends.as_raw_fd());
        let stuck = std::thread::Builder::new().name("stuck".into()).spawn(body).expect("a thread");
        until("it is stuck", || thread_state("stuck") == Some('D'));
        let goroutine = find("stuck").expect("it is there");
        assert_eq!(
            Names::default().of(&goroutine),
            ["rtprof_runtime::stack::marker::thread_does_not_answer"]
        );
        assert_eq!(goroutine.kernel.expect("it is told").state, 'D');
        // The first signal stays pending; no second one is sent.
        let again = find("stuck").expect("it is there");
        assert_eq!(Names::default().of(&again), ["rtprof_runtime::stack::marker::thread_does_not_answer"]);
        end.write_all(b"x").expect("it reads");
        stuck.join().expect("it goes on");
        assert!(find("stuck").is_none());
    });
}

/// Returns when a byte was written to the pipe: a child of `vfork` reads it.
fn vfork_until_written(pipe: libc::c_int) {
    // SAFETY: the child shares the parent's memory, has a separate stack, and makes only system calls. The parent waits
    // for it.
    unsafe {
        extern "C" fn read_one(pipe: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the call reads into a local.
            unsafe { libc::read(pipe.addr() as libc::c_int, [0_u8].as_mut_ptr().cast(), 1) as libc::c_int }
        }
        let mut stack = vec![0_u128; 4096];
        let top = stack.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let child = libc::clone(read_one, top, flags, std::ptr::without_provenance_mut(pipe as usize));
        assert!(child > 0);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// The kernel refuses signals by a filter for system calls, as in sandboxes.
#[test]
fn the_kernel_may_refuse_signals() {
    child::isolated("the_kernel_may_refuse_signals", || {
        beside_others(|_| {
            if let Err(error) = sandbox::refuse(&[libc::SYS_rt_tgsigqueueinfo, libc::SYS_tgkill]) {
                skipped("the_kernel_may_refuse_signals", &error.to_string());
                return;
            }
            all_are_silent("kernel_refuses_signals");
        });
    });
}

/// The process runs in a root directory without /proc.
#[test]
fn proc_may_be_missing() {
    child::isolated("proc_may_be_missing", || {
        beside_others(|_| {
            // Looks up the names now, which are cached from then on.
            let _ = comments();
            wait_for_end_of_search();
            // SAFETY: plain calls.
            let is_in = unsafe { libc::unshare(libc::CLONE_FS) == 0 && libc::chroot(c"/sys".as_ptr()) == 0 };
            if !is_in {
                skipped("proc_may_be_missing", "only root may change the root directory");
                return;
            }
            let ours = find("ours").expect("rtprof knows it");
            assert_eq!(ours.frames.len(), 1, "{ours:?}");
            assert_eq!(rtprof::num_goroutine(), goroutine_profile().len());
        });
    });
}

/// Limits of descriptors, or of pending signals: the missing parts are reported, and no thread is left out.
#[test]
fn limits_are_told() {
    let limits = [
        (libc::RLIMIT_NOFILE, "no descriptors", ""),
        (libc::RLIMIT_SIGPENDING, "no signals", ""),
        (libc::RLIMIT_SIGPENDING, "no real-time signals", "signal_queue_is_full"),
    ];
    for (resource, what, why) in limits {
        child::isolated_as("limits_are_told", what, || {
            if what == "no real-time signals" {
                handle(IGNORED);
            }
            beside_others(|_| {
                // Looks up the names now, which are cached from then on.
                let _ = comments();
                wait_for_end_of_search();
                wait_until_back();
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: the call reads the local.
                assert_eq!(unsafe { libc::setrlimit(resource, &raw const none) }, 0);
                let all = goroutine_profile();
                assert_eq!(all.len(), rtprof::num_goroutine(), "{what}");
                for ours in all.iter().filter(|goroutine| goroutine.name == "ours") {
                    // Names of functions are read from files, so only the marker remains. A signal that is not a
                    // real-time signal arrives all the same.
                    assert_eq!(ours.frames.len() == 1, what != "no signals", "{what}: {ours:?}");
                }
                assert!(all.iter().any(|goroutine| goroutine.name == "ours"), "{what}: {all:#?}");
                match what {
                    "no real-time signals" => all_are_silent(why),
                    "no signals" => {
                        assert!(find("naps").is_some_and(|naps| naps.frames.len() > 2), "{all:#?}")
                    }
                    _ => {}
                }
            });
        });
    }
}

/// A thread that accepts all signals with `sigtimedwait` may take ours: the thread is signalled again, and the snapshot
/// goes on.
#[test]
fn a_thread_that_takes_signals_itself_holds_up_nothing() {
    child::isolated("a_thread_that_takes_signals_itself_holds_up_nothing", || {
        let background = &Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            start(scope, "takes", || {
                background.repeat(|| {
                    // SAFETY: the calls read and write locals.
                    unsafe {
                        let mut all: libc::sigset_t = std::mem::zeroed();
                        libc::sigfillset(&raw mut all);
                        let mut before: libc::sigset_t = std::mem::zeroed();
                        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
                        let time = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
                        libc::sigtimedwait(&raw const all, std::ptr::null_mut(), &raw const time);
                        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                    }
                });
            });
            until("it has begun", || find("takes").is_some());
            for _ in 0..rounds(12, 100) {
                assert!(find("takes").is_some());
            }
        });
    });
}

/// Many threads and processes begin and end during snapshots.
#[test]
fn commands_are_run_beside_snapshots() {
    child::isolated("commands_are_run_beside_snapshots", || {
        let background = &Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                background.repeat(|| {
                    let all = goroutine_profile();
                    let runs = |goroutine: &&rtprof::GoroutineRecord| goroutine.name == "goroutines::sil";
                    assert!(all.iter().filter(runs).count() >= 1 && !all[0].frames.is_empty(), "{all:#?}");
                });
            });
            for _ in 0..30 {
                let status = Command::new("/bin/true").status().expect("it runs");
                assert!(status.success(), "{status}");
            }
            for _ in 0..30 {
                fork::in_a_child("nothing", || ());
            }
        });
    });
}
