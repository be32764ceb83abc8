//! The program's own file is replaced and corrupted by others while names are read from it, or is hard to find.
//!
//! A file that is mapped and cut raises SIGBUS, a FIFO at a file's path blocks its reader, and a file that is written
//! while it is read gives names of other functions. Each of these happens where a service is deployed again under its
//! old path.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use http_body_util::BodyExt;
use test_support::folder;
use test_support::profile::Profile;
use test_support::random::Random;
use test_support::{self, Background, child, until, workload};

fn folder(test: &str) -> PathBuf {
    folder::tmp().join("files").join(test)
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

/// Returns the names of addresses; those not asked for before are read from the program's file.
fn names(addresses: &[usize]) -> BTreeMap<usize, String> {
    let words: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
    let answer = get(&format!("symbol?{}", words.join("+")));
    let line = |line: &str| {
        let (address, name) = line.split_once(' ')?;
        Some((usize::from_str_radix(address.strip_prefix("0x")?, 16).ok()?, name.to_owned()))
    };
    answer.lines().filter_map(line).collect()
}

/// Replaces the file of the running program by a copy, as a deployment does.
fn deploy_again(program: &Path) -> Vec<u8> {
    let content = fs::read(program).expect("the program's file");
    fs::remove_file(program).expect("its folder can be written");
    fs::write(program, &content).expect("its folder can be written");
    content
}

/// Returns addresses of the program's code, 16 bytes apart.
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
        // The program itself is the reference: its neighbouring addresses of the same functions must have the same
        // names.
        let before: Vec<usize> = asked.iter().map(|address| address - 1).collect();
        let after: Vec<usize> = asked.iter().map(|address| address + 1).collect();
        let mut truth = BTreeMap::new();
        until("the file is read again, now that it is left alone", || {
            truth = names(&[&before[..], &after[..]].concat());
            truth.len() > ROUNDS
        });
        for (address, name) in &answered {
            // An address between two functions has no name.
            let truths = [truth.get(&(address - 1)), truth.get(&(address + 1))];
            assert!(truths.contains(&Some(name)), "{address:#x} is {truths:?}, and was called {name}");
        }
    });
}

/// Leaves the file alone for a time of random length, so that it is opened; then cuts it, fills it with zeroes, and
/// restores it.
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
        // The kernel keeps the running file, and so its names, reachable.
        assert!(!Profile::heap().samples_of("every_kind").is_empty());
        assert_eq!(names(&addresses(3)).len(), 3);
    });
}

/// Returns the loader of this program; `None` if the program is linked statically.
fn loader() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let is_loader = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"));
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(is_loader)?;
    Some(PathBuf::from(path))
}

#[test]
fn a_program_that_the_loader_was_executed_for_has_its_names() {
    let test = "a_program_that_the_loader_was_executed_for_has_its_names";
    let Some(loader) = loader() else { return test_support::skipped(test, "linked statically") };
    child::isolated_by_loader(&loader, test, || {
        let executed = fs::read_link("/proc/self/exe").expect("what was executed");
        assert_eq!(Some(executed), fs::canonicalize(&loader).ok());
        rtprof::set_mem_profile_rate(1);
        workload::every_kind();
        rtprof::set_mem_profile_rate(0);
        let profile = Profile::heap();
        assert!(!profile.samples_of("every_kind").is_empty());
        let program = profile.text(profile.mapping[0].filename);
        assert!(program.contains("/readers-"), "{program}");
    });
}

/// Allocates, and reads the names of the allocating functions from the program's own file.
fn allocate_and_read_names() {
    rtprof::set_mem_profile_rate(1);
    workload::every_kind();
    rtprof::set_mem_profile_rate(0);
    let profile = Profile::heap();
    assert!(!profile.samples_of("every_kind").is_empty(), "{}", profile.comments());
}

/// `pthread_exit` in `main`: other threads run on, and the kernel's directory of the process is empty.
#[test]
fn a_program_whose_main_thread_has_ended_has_its_names() {
    extern "C" fn end_of_thread(_signal: libc::c_int) {
        // SAFETY: ends the interrupted thread, which only waits for this test.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let test = "a_program_whose_main_thread_has_ended_has_its_names";
    child::isolated_from(&folder(test), test, || {
        // Only the kernel still has the file.
        fs::remove_file(std::env::current_exe().expect("the copy")).expect("its folder can be written");
        let handler = end_of_thread as extern "C" fn(libc::c_int);
        // SAFETY: the handler only does what a handler may do; the main thread's id is that of the process.
        unsafe {
            assert_ne!(libc::signal(libc::SIGUSR1, handler as libc::sighandler_t), libc::SIG_ERR);
            let process = libc::getpid();
            assert_eq!(libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1), 0);
        }
        until("the main thread has ended", || fs::read_link("/proc/self/exe").is_err());
        allocate_and_read_names();
        assert!(get("heap?debug=1").contains("# MaxRSS = "));
        assert!(get("").contains("program"), "the index says which program it is");
        // No thread is left that could return from `main`.
        std::process::exit(0);
    });
}

/// /proc is hidden by a file system without processes, as in a chroot, from the first instruction on.
#[test]
fn a_program_without_proc_has_its_names() {
    let test = "a_program_without_proc_has_its_names";
    if !can_hide_proc() {
        return test_support::skipped(test, "no namespace of mounts may be made here");
    }
    child::isolated_with(test, "", hide_proc, || {
        assert!(fs::read_link("/proc/thread-self/exe").is_err());
        allocate_and_read_names();
    });
}

fn can_hide_proc() -> bool {
    let mut command = Command::new("true");
    hide_proc(&mut command);
    command.status().is_ok()
}

fn hide_proc(command: &mut Command) {
    let hide = || {
        let (root, proc, files) = (c"/".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: system calls whose strings are constants.
        let is_hidden = unsafe {
            // The second attempt makes a user namespace too, for users who may not make a mount namespace alone.
            (libc::unshare(libc::CLONE_NEWNS) == 0
                || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0)
                && libc::mount(files, root, std::ptr::null(), private, std::ptr::null()) == 0
                && libc::mount(files, proc, files, 0, std::ptr::null()) == 0
        };
        if is_hidden { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes only system calls.
    unsafe { command.pre_exec(hide) };
}
