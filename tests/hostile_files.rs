//! The program's own file, replaced and spoiled by others while names are read from it.
//!
//! A file that is mapped and cut raises SIGBUS, a FIFO at a file's path is waited for, and a file that is written to
//! while it is read gives names of other functions: each of them happens where a service is deployed anew under its
//! old path. A file on a network mount whose server is gone keeps its reader for ever.
#![cfg(feature = "http")]

mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use support::profile::Profile;
use support::random::Random;
use support::web::Answer;
use support::{Background, child, threads, until, web, workload};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

fn folder(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("files").join(test)
}

fn get(path: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let request =
            http::Request::get(format!("/debug/pprof/{path}")).body(String::new()).expect("a request");
        let response = rtprof::http::handle(request).await;
        let body = response.into_body().collect().await.expect("a body that ends well").to_bytes();
        String::from_utf8_lossy(&body).into_owned()
    })
}

/// The names of addresses, read from the program's file as far as they were not asked for before.
fn names(addresses: &[usize]) -> BTreeMap<usize, String> {
    let words: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
    let answer = get(&format!("symbol?{}", words.join("+")));
    let line = |line: &str| {
        let (address, name) = line.split_once(' ')?;
        Some((usize::from_str_radix(address.strip_prefix("0x")?, 16).ok()?, name.to_owned()))
    };
    answer.lines().filter_map(line).collect()
}

/// Puts another file in the place of the one that runs, as a deployment does. It has the same content.
fn deploy_again(program: &Path) -> Vec<u8> {
    let content = fs::read(program).expect("the program's file");
    fs::remove_file(program).expect("its folder can be written");
    fs::write(program, &content).expect("its folder can be written");
    content
}

/// Addresses of the program's code, 16 bytes apart.
fn addresses(number: usize) -> Vec<usize> {
    let here = workload::every_kind as fn() as usize & !15;
    (0..number).map(|at| here + 16 * at).collect()
}

#[test]
fn files_that_change_while_they_are_read_give_no_signal_and_no_wrong_name() {
    let test = "files_that_change_while_they_are_read_give_no_signal_and_no_wrong_name";
    child::isolated_from(&folder(test), test, || {
        const ROUNDS: usize = 40;
        let program = std::env::current_exe().expect("the copy");
        let content = deploy_again(&program);
        let asked = addresses(ROUNDS);
        let background = Background::default();
        let mut answered = BTreeMap::new();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                let random = RefCell::new(Random::new(20));
                background.repeat(|| spoil_and_mend(&program, &content, &mut random.borrow_mut()));
            });
            for address in &asked {
                answered.extend(names(&[*address]));
            }
        });
        // Whatever was read then: the program as it is has other addresses of the same functions by the same names.
        let before: Vec<usize> = asked.iter().map(|address| address - 1).collect();
        let after: Vec<usize> = asked.iter().map(|address| address + 1).collect();
        let mut truth = BTreeMap::new();
        until("the file is read again, now that it is left alone", || {
            truth = names(&[&before[..], &after[..]].concat());
            truth.len() > ROUNDS
        });
        for (address, name) in &answered {
            // None between two functions.
            let truths = [truth.get(&(address - 1)), truth.get(&(address + 1))];
            assert!(truths.contains(&Some(name)), "{address:#x} is {truths:?}, and was called {name}");
        }
    });
}

/// Leaves the file alone for a while, now longer and now shorter, so that it is opened; then cuts it, fills it with
/// zeroes, and writes it as it was.
fn spoil_and_mend(program: &Path, content: &[u8], random: &mut Random) {
    std::thread::sleep(Duration::from_micros(random.below(60_000) as u64));
    let mut file = OpenOptions::new().write(true).open(program).expect("the copy can be written");
    file.set_len(content.len() as u64 / 2).expect("the copy can be cut");
    file.set_len(content.len() as u64).expect("the copy can be made longer");
    file.write_all(content).expect("the copy can be written");
}

#[test]
fn a_fifo_in_the_programs_place_holds_up_nothing() {
    let test = "a_fifo_in_the_programs_place_holds_up_nothing";
    child::isolated_from(&folder(test), test, || {
        let program = std::env::current_exe().expect("the copy");
        fs::remove_file(&program).expect("its folder can be written");
        let path = CString::new(program.as_os_str().as_bytes()).expect("no zero in a path");
        // SAFETY: `path` outlives the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        assert!(get("").contains("/debug/pprof/"), "the index");
        // The kernel keeps the file that runs, and its names, reachable.
        assert!(!Profile::heap().samples_of("every_kind").is_empty());
        assert_eq!(names(&addresses(3)).len(), 3);
    });
}

/// The loader of this program. `None` for one that is linked statically.
fn loader() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let is_loader = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"));
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(is_loader)?;
    Some(PathBuf::from(path))
}

#[test]
fn a_program_that_the_loader_was_executed_for_has_its_names() {
    let test = "a_program_that_the_loader_was_executed_for_has_its_names";
    let Some(loader) = loader() else { return support::skipped(test, "linked statically") };
    child::isolated_by_loader(&loader, test, || {
        let executed = fs::read_link("/proc/self/exe").expect("what was executed");
        assert_eq!(Some(executed), fs::canonicalize(&loader).ok());
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        let profile = Profile::heap();
        assert!(!profile.samples_of("every_kind").is_empty());
        let program = profile.text(profile.mapping[0].filename);
        assert!(program.contains("/hostile_files-"), "{program}");
    });
}

/// Files that are opened as on a mount that does not answer: while it is on, calls do not return.
struct Mount {
    state: Mutex<MountState>,
    changed: Condvar,
}

#[derive(Default)]
struct MountState {
    is_stalled: bool,
    /// How many threads wait for it.
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

    /// Returns when it answers.
    fn wait(&self) {
        let mut state = self.state.lock().expect("no panic inside");
        state.waiting += 1;
        while state.is_stalled {
            state = self.changed.wait(state).expect("no panic inside");
        }
        state.waiting -= 1;
    }
}

/// Stands for the C library's in this program, std's calls among them. Programs and libraries lie on the mount; what is
/// opened for writing and what is under /proc does not.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
extern "C" fn open64(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    // SAFETY: the caller's duty.
    let name = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let is_mounted = name.starts_with(b"/proc/self/exe") || !name.starts_with(b"/proc/") && name.len() > 1;
    if is_mounted && flags & libc::O_NONBLOCK != 0 {
        MOUNT.wait();
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::openat(libc::AT_FDCWD, path, flags, libc::c_uint::from(mode)) }
}

/// Names come late, and nothing else waits for them: on a server, in the program itself, in a trace, and when the server
/// is shut down.
#[test]
#[cfg(target_env = "gnu")]
fn a_mount_that_does_not_answer_holds_up_nothing() {
    const LATE: &str = "have no names yet";
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
            // What reads the file gives way to the program.
            assert_eq!(threads::nice_values("rtprof-symbols"), [(threads::own_nice_value() + 10).min(19)]);
            let others = [
                scope.spawn(|| get("heap?seconds=1")),
                scope.spawn(|| get("trace?seconds=0.1")),
                scope.spawn(|| get("")),
            ];
            let lean = profile(get("heap?symbolize=none"));
            assert!(!lean.comments().contains(LATE) && !lean.sample.is_empty());
            // Of the program itself, meanwhile.
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
        // Given up or not, those that wait for the file do not keep the server.
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
