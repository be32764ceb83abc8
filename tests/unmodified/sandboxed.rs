//! A program that has forbidden itself all system calls but those in the lists below: recording needs no others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, mpsc};
use std::thread::sleep;
use std::time::Duration;

use rtprof::trace::{Format, Options};
use rtprof::{BlockKinds, set_block_profile_kinds};
use test_support::contention::record_everything;
use test_support::recording::Kept;
use test_support::{child, sandbox, until};

/// The system calls of std and the C library for threads, locks, memory, time and sockets.
const NEEDED: [libc::c_long; 31] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_socketpair,
    libc::SYS_write,
];

/// The system calls that rtprof adds, once in each thread: for the thread's id, and for the end of its stack.
/// docs/unmodified.md lists them too.
const OURS: [libc::c_long; 4] = [libc::SYS_getpid, libc::SYS_gettid, libc::SYS_ioctl, libc::SYS_openat];

/// The system calls of the thread that writes a trace: it reads in /proc what other threads do, and checks whether a
/// thread that makes no progress lives.
const WRITERS: [libc::c_long; 4] = [libc::SYS_lseek, libc::SYS_membarrier, libc::SYS_statx, libc::SYS_tgkill];

/// Makes threads that wait for each other in every way, and end.
fn works() {
    let (near, far) = UnixStream::pair().expect("there are descriptors");
    let (send, receive) = mpsc::channel();
    let lock = std::sync::Arc::new(Mutex::new(0));
    let theirs = lock.clone();
    let thread = std::thread::Builder::new().name("sandboxed".into());
    let thread = thread.spawn(move || {
        for number in receive {
            *theirs.lock().unwrap() += number;
            { &far }.write_all(b"x").unwrap();
        }
    });
    for number in 0..100 {
        let held = lock.lock().unwrap();
        send.send(number).unwrap();
        sleep(Duration::from_micros(100));
        drop(held);
        { &near }.read_exact(&mut [0]).unwrap();
    }
    drop(send);
    thread.unwrap().join().unwrap();
    assert_eq!(*lock.lock().unwrap(), 99 * 50);
}

/// A program works as before once it has forbidden all other system calls. (The trace is not ended in this state,
/// because its end reads the program's file, for names. It is in the first format, because the second one does so in
/// each generation.)
#[test]
fn no_other_system_call_is_made() {
    for what in ["nothing", "waits", "a trace"] {
        child::isolated_as("no_other_system_call_is_made", what, || {
            let is_recorded = what != "nothing";
            let kept = Kept::default();
            if is_recorded {
                record_everything();
                set_block_profile_kinds(BlockKinds::ALL);
            }
            if what == "a trace" {
                let options = Options { format: Format::V1, ..Options::default() };
                rtprof::trace::start_with(kept.clone(), options).expect("no other goes on");
            }
            works();
            let others: &[_] = if what == "a trace" { &WRITERS } else { &[] };
            sandbox::kill_at_all_but(&[&NEEDED[..], &OURS, others].concat()).expect("a filter");
            let before = kept.bytes().len();
            (0..5).for_each(|_| works());
            let waits: i64 = rtprof::block_profile().iter().map(|record| record.count).sum();
            assert!(waits >= 600 || !is_recorded, "{waits} waits");
            if what == "a trace" {
                until("the trace grows", || kept.bytes().len() > before);
            }
        });
    }
}
