//! Files on a network mount whose server is gone: a read never returns.

use std::io;
use std::sync::{Condvar, Mutex};

use test_support::profile::Profile;
use test_support::web::Answer;
use test_support::{child, fork, threads, until, web, workload};

/// A simulated mount that may stop answering: while it is stalled, calls do not return.
struct Mount {
    state: Mutex<MountState>,
    changed: Condvar,
}

#[derive(Default)]
struct MountState {
    is_stalled: bool,
    /// The number of threads that wait for the mount.
    waiting: usize,
}

static MOUNT: Mount =
    Mount { state: Mutex::new(MountState { is_stalled: false, waiting: 0 }), changed: Condvar::new() };

impl Mount {
    fn set_stalled(&self, is_stalled: bool) {
        self.state.lock().expect("no panic inside").is_stalled = is_stalled;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().expect("no panic inside").waiting
    }

    /// Returns when the mount answers.
    fn wait(&self) {
        let mut state = self.state.lock().expect("no panic inside");
        state.waiting += 1;
        while state.is_stalled {
            state = self.changed.wait(state).expect("no panic inside");
        }
        state.waiting -= 1;
    }
}

/// Replaces the C library's function in this program, also for calls from std. Programs and libraries lie on the mount;
/// files opened for writing and files under /proc do not.
#[unsafe(no_mangle)]
extern "C" fn open64(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    // SAFETY: the caller passes a valid C string, as `open64` requires.
    let name = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let is_mounted =
        name.starts_with(b"/proc/thread-self/exe") || !name.starts_with(b"/proc/") && name.len() > 1;
    if is_mounted && flags & libc::O_NONBLOCK != 0 {
        MOUNT.wait();
    }
    // SAFETY: the arguments are the caller's, and valid for `open64`.
    unsafe { libc::openat(libc::AT_FDCWD, path, flags, libc::c_uint::from(mode)) }
}

/// Replaces the C library's function as [`open64`] does.
#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: libc::c_int,
    path: *const libc::c_char,
    flags: libc::c_int,
    mask: libc::c_uint,
    into: *mut libc::statx,
) -> libc::c_int {
    // std tests with a null pointer whether the call exists.
    // SAFETY: any other pointer is a valid C string, as `statx` requires of the caller.
    let name = (!path.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes());
    let kernel = [&b"/proc/"[..], b"/sys/"];
    if name.is_some_and(|name| name.starts_with(b"/") && !kernel.iter().any(|of| name.starts_with(of))) {
        MOUNT.wait();
    }
    // SAFETY: the arguments are the caller's, and valid for `statx`.
    unsafe { libc::syscall(libc::SYS_statx, folder, path, flags, mask, into) as libc::c_int }
}

/// Replaces the C library's function as [`open64`] does. No code of ours may call it on a thread that others wait for.
#[unsafe(no_mangle)]
extern "C" fn realpath(path: *const libc::c_char, _into: *mut libc::c_char) -> *mut libc::c_char {
    MOUNT.wait();
    unsafe extern "C" {
        fn canonicalize_file_name(path: *const libc::c_char) -> *mut libc::c_char;
    }
    // SAFETY: the path is a valid C string, as `realpath` requires of the caller; the result comes from the C library's
    // allocator, as std expects.
    unsafe { canonicalize_file_name(path) }
}

/// A library is loaded, and its mount stops answering before rtprof has seen the library.
#[test]
fn a_new_library_on_a_mount_that_does_not_answer() {
    child::isolated("a_new_library_on_a_mount_that_does_not_answer", || {
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        // SAFETY: the library is a part of the C library, without constructors.
        let library = unsafe { libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the C library is whole");
        MOUNT.set_stalled(true);
        rtprof::refresh_modules();
        let mut profile = Vec::new();
        let snapshot = rtprof::pprof::lookup("heap").expect("it is there").snapshot().expect("no fork");
        snapshot.write_proto(&mut profile, rtprof::pprof::Symbolization::None).expect("a vector takes all");
        let profile = Profile::read(&profile);
        let is_listed = profile.mapping.iter().any(|mapping| {
            let path = profile.text(mapping.filename);
            path.starts_with('/') && path.contains("libresolv")
        });
        assert!(is_listed && MOUNT.waiting() == 0);
        MOUNT.set_stalled(false);
    });
}

/// A daemon is a forked child all its life.
#[test]
fn a_forked_child_waits_for_no_mount() {
    fork::isolated("a_forked_child_waits_for_no_mount", "", || {
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        fork::in_a_child("a profile while the mount is gone", || {
            MOUNT.set_stalled(true);
            let profile = Profile::heap();
            assert!(profile.samples_of("every_kind").is_empty() && !profile.sample.is_empty());
            assert!(MOUNT.waiting() > 0);
            MOUNT.set_stalled(false);
            until("the names are there", || !Profile::heap().samples_of("every_kind").is_empty());
        });
    });
}

/// Names come late, and nothing else waits for them: on a server, in the program itself, in a trace, and when the
/// server is shut down.
#[test]
fn a_mount_that_does_not_answer_holds_up_nothing() {
    const LATE: &str = "no names yet";
    child::isolated("a_mount_that_does_not_answer_holds_up_nothing", || {
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        let address = server.local_addr();
        let get = move |path: &str| {
            let answer = web::get(address, &format!("/debug/pprof/{path}"));
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            answer
        };
        let profile = |answer: Answer| Profile::read(&answer.body);
        let without_names = |profile: &Profile| {
            let build_ids = profile.mapping.iter().filter(|mapping| mapping.build_id != 0).count();
            assert!(profile.comments().contains(LATE), "{}", profile.comments());
            assert!(
                profile.samples_of("every_kind").is_empty() && !profile.sample.is_empty() && build_ids > 0
            );
        };

        MOUNT.set_stalled(true);
        std::thread::scope(|scope| {
            let heap = scope.spawn(|| profile(get("heap")));
            until("the file is opened", || MOUNT.waiting() > 0);
            // The thread that reads the file gives way to the program.
            assert_eq!(threads::nice_values("rtprof-symbols"), [(threads::own_nice_value() + 10).min(19)]);
            let others = [
                scope.spawn(|| get("heap?seconds=1")),
                scope.spawn(|| get("trace?seconds=0.1")),
                scope.spawn(|| get("")),
            ];
            let lean = profile(get("heap?symbolize=none"));
            assert!(!lean.comments().contains(LATE) && !lean.sample.is_empty());
            // The program's own profile, meanwhile.
            without_names(&Profile::heap());
            without_names(&heap.join().expect("answered"));
            for other in others {
                other.join().expect("answered");
            }
        });
        rtprof::trace::start(io::sink()).expect("no trace goes on");
        rtprof::trace::with_region("traced", || ());
        let traced = rtprof::trace::stop().expect("it ends");
        assert!(traced.unnamed_addresses > 0, "{traced:?}");
        // Threads that wait for the file do not keep the server, whether they were abandoned or not.
        assert!(MOUNT.waiting() > 0);
        let last = std::thread::spawn(move || {
            web::exchange(address, web::request(address, "GET", "/debug/pprof/heap?debug=1", &[], ""))
        });
        server.shutdown();
        drop(last.join());
        assert!(MOUNT.waiting() > 0);

        MOUNT.set_stalled(false);
        until("the names are there", || {
            let profile = Profile::heap();
            !profile.samples_of("every_kind").is_empty() && !profile.comments().contains(LATE)
        });
        until("no thread is left", || threads::nice_values("rtprof-symbols").is_empty());
    });
}
