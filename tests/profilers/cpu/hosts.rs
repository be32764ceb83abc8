//! Sampling does not disturb the program's own handlers, signals and children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rtprof::pprof::{self, CpuProfileOptions, CpuSource};
use test_support::descriptors::{self, Untouched};
use test_support::processor::{burn, used};
use test_support::signals::{self, disposition};
use test_support::{child, until};

use super::work::{SOURCES, Shared, by, profiled, samples_and_missed, samples_of, sum};

static HANDLED: AtomicU32 = AtomicU32::new(0);

// Never inlined, so that it has a single address.
#[inline(never)]
extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Relaxed);
}

/// Installs the program's handler for a signal.
fn handle(signal: i32) {
    // SAFETY: the handler adds to a number.
    assert_ne!(unsafe { libc::signal(signal, count as *const () as usize) }, libc::SIG_ERR);
}

/// The signals that the sampler may use, in the order in which it tries them.
const CANDIDATES: [i32; 5] = [libc::SIGURG, libc::SIGWINCH, libc::SIGPROF, libc::SIGSTKFLT, libc::SIGVTALRM];

/// Installs the program's handler for all candidates.
pub(crate) fn handle_all_candidates() {
    CANDIDATES.into_iter().for_each(handle);
}

/// Sends a signal to the current thread.
fn raise(signal: i32) {
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Whichever signals the program handles, the profile is complete, and none of the program's own signals is lost.
#[test]
fn handlers_of_the_program_get_their_signals() {
    let signals = CANDIDATES;
    for source in SOURCES {
        for handled in 0..signals.len() {
            let scenario = format!("{source:?} {handled}");
            child::isolated_as("handlers_of_the_program_get_their_signals", &scenario, || {
                signals[..handled].iter().copied().for_each(handle);
                let before = signals.map(disposition);
                let sent = std::cell::Cell::new(0);
                let work = || {
                    for _ in 0..50 {
                        burn(Duration::from_millis(2));
                        for &signal in &signals[..handled] {
                            raise(signal);
                            sent.set(sent.get() + 1);
                        }
                    }
                };
                let ((), profile, _) = profiled(by(source, 1000), work);
                assert_eq!(HANDLED.load(Relaxed), sent.get());
                let function = "handlers_of_the_program_get_their_signals";
                let (found, own) = (samples_and_missed(&profile, function), samples_of(&profile, function));
                assert!(found >= 90 && own > 0, "{own}, and with what timers have missed {found}");
                assert_eq!(signals.map(disposition), before, "all is as it was");
            });
        }
    }
}

/// A signal with our number that another sender sends has the effect that it would have without us.
#[test]
fn signals_of_others_do_what_they_did() {
    // These signals are ignored by default.
    child::isolated_as("signals_of_others_do_what_they_did", "ignored", || {
        for signal in [libc::SIGURG, libc::SIGWINCH] {
            profiled(CpuProfileOptions::default(), || (0..100).for_each(|_| raise(signal)));
            handle(signal);
        }
    });
    if child::any() && !child::is("signals_of_others_do_what_they_did", "ends") {
        return;
    }
    let ends = || {
        [libc::SIGURG, libc::SIGWINCH].into_iter().for_each(handle);
        pprof::start_cpu_profile(io::sink()).unwrap();
        raise(libc::SIGPROF);
        unreachable!("it ends the process by default");
    };
    if child::is("signals_of_others_do_what_they_did", "ends") {
        ends();
    }
    let output = child::output("signals_of_others_do_what_they_did", "ends", |_| {});
    assert_eq!(child::signal(output.status), Some(libc::SIGPROF), "{}", child::report(&output));
}

/// A program that installs its handler during sampling receives the signal from then on, and the profile goes on with
/// another signal.
#[test]
fn a_handler_that_comes_later_has_the_signal() {
    for source in SOURCES {
        child::isolated_as("a_handler_that_comes_later_has_the_signal", &format!("{source:?}"), || {
            let work = || {
                burn(Duration::from_millis(30));
                handle(libc::SIGURG);
                until("another signal is used", || disposition(libc::SIGWINCH) != libc::SIG_DFL);
                // Signals that the sampler had sent before, and that the program's handler received.
                HANDLED.store(0, Relaxed);
                // All threads are attached again, one after the other.
                (0..4).for_each(|_| late());
                (0..10).for_each(|_| raise(libc::SIGURG));
            };
            let ((), profile, _) = profiled(by(source, 1000), work);
            assert_eq!(HANDLED.load(Relaxed), 10);
            let found = samples_and_missed(&profile, "hosts::late");
            assert!(found >= 200, "{found}");
            assert_eq!(disposition(libc::SIGURG), count as *const () as usize);
            assert_eq!(disposition(libc::SIGWINCH), libc::SIG_DFL);
        });
    }
}

#[inline(never)]
fn late() {
    std::hint::black_box(burn(Duration::from_millis(100)));
}

const REPLACED: &str = "RTPROF_TEST_REPLACED";

/// A program that calls exec while it is sampled: signals that are pending then must not end the new program.
#[test]
fn exec_is_survived() {
    for (source, handled) in SOURCES.into_iter().flat_map(|source| [(source, false), (source, true)]) {
        child::isolated_as("exec_is_survived", &format!("{source:?} {handled}"), || {
            let rounds: u32 = std::env::var(REPLACED).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            assert_eq!(disposition(libc::SIGURG), libc::SIG_DFL);
            if rounds == 20 {
                return;
            }
            if handled {
                // The sampler then takes the next candidate.
                handle(libc::SIGURG);
            }
            pprof::start_cpu_profile_with(io::sink(), by(source, 10_000)).unwrap();
            burn(Duration::from_millis(2));
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(std::env::args().skip(1)).env(REPLACED, (rounds + 1).to_string());
            panic!("exec: {}", command.exec());
        });
    }
}

/// A program closes descriptors that it has not opened, and its files get their numbers: they stay as they are.
#[test]
fn descriptors_may_be_closed() {
    for source in SOURCES {
        child::isolated_as("descriptors_may_be_closed", &format!("{source:?}"), || {
            let burns = || _ = burn(Duration::from_millis(20));
            let bytes = Shared::default();
            pprof::start_cpu_profile_with(bytes.clone(), by(source, 1000)).unwrap();
            burns();
            let files = descriptors::replace();
            let before = used();
            burn(Duration::from_millis(100));
            let burnt = used() - before;
            // SAFETY: the child of the fork makes system calls only. All locals outlive the calls.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    files.iter().for_each(Untouched::check);
                    libc::_exit(0);
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            assert_eq!(status, 0, "the child's files are whole");
            pprof::stop_cpu_profile().expect("it ends");
            files.iter().for_each(Untouched::check);
            // The time is counted, with stacks or without.
            let (_, nanos) = sum(&bytes.profile().samples());
            assert!(nanos as u128 >= burnt.as_nanos() * 9 / 10, "{nanos} of {burnt:?}");

            until("the next profile has samples", || {
                let (.., profile, _) = profiled(by(source, 1000), burns);
                samples_of(&profile, "descriptors_may_be_closed") > 0
            });
            files.iter().for_each(Untouched::check);
        });
    }
}

/// A forked child is not sampled, and can take its own profile, while its parent's goes on.
#[test]
fn forked_children_can_take_their_own() {
    for source in SOURCES {
        test_support::fork::isolated("forked_children_can_take_their_own", &format!("{source:?}"), || {
            let work = || {
                let start = used();
                for _ in 0..3 {
                    burn(Duration::from_millis(10));
                    test_support::fork::in_a_child("a profile", || {
                        assert!(pprof::stop_cpu_profile().is_err());
                        burn(Duration::from_millis(10));
                        let ((), profile, _) = profiled(by(source, 1000), late);
                        let found = samples_and_missed(&profile, "hosts::late");
                        assert!((90..=120).contains(&found), "{found}");
                    });
                }
                burn(Duration::from_millis(30));
                used() - start
            };
            let (used, profile, _) = profiled(by(source, 1000), work);
            let (found, due) =
                (samples_and_missed(&profile, "forked_children_can_take"), used.as_millis() as i64);
            assert!((found - due).abs() <= 20, "{found} of {due}, and nothing of its children's 300");
        });
    }
}

/// Each child inherits its parent's handler.
#[test]
fn children_of_children_have_the_same_signal() {
    fn generation(left: u32) {
        let ((), profile, _) = profiled(CpuProfileOptions::default(), || {
            assert_ne!(disposition(libc::SIGURG), libc::SIG_DFL);
            assert_eq!(disposition(libc::SIGWINCH), libc::SIG_DFL);
            if left > 0 {
                test_support::fork::in_a_child("a generation", || {
                    assert_eq!(disposition(libc::SIGURG), libc::SIG_DFL, "a child is not sampled");
                    generation(left - 1);
                });
            }
        });
        profile.check();
    }
    test_support::fork::isolated("children_of_children_have_the_same_signal", "", || generation(6));
}

/// The kernel keeps one pending signal of a kind. If another sender's signal is pending, ours is lost, even the first
/// one, with which the sampling of a thread begins.
#[test]
fn a_first_signal_may_be_lost() {
    child::isolated("a_first_signal_may_be_lost", || {
        let urgent = signals::set_of(&[libc::SIGURG]);
        let work = || {
            signals::block(&urgent);
            raise(libc::SIGURG);
            burn(Duration::from_millis(5));
            signals::unblock(&urgent);
            // Long enough for the collector to check several times.
            (0..5).for_each(|_| late());
        };
        let ((), profile, _) = profiled(by(CpuSource::Perf, 1000), work);
        let (found, own) = (samples_and_missed(&profile, "hosts::late"), samples_of(&profile, "hosts::late"));
        assert!(found >= 490 && own > 0, "{own}, and without a stack {found}");
    });
}
