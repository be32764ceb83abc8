//! Tables of functions (`format=top`), and parts of a profile: stacks from the program's code on, kinds of waits.

use std::hint::black_box;
use std::time::Duration;

use bytes::BytesMut;
use rtprof::sync::Mutex;
use rtprof::task::Instrument;
use rtprof::{BlockKinds, thread};
use test_support::profile::{ALLOC_SPACE, Frame, INUSE_SPACE, Profile, Sample};
use test_support::{child, until, web};

use super::{start, text};

const LINE: u32 = line!() + 4;

#[inline(never)]
fn page() -> Vec<u8> {
    black_box(vec![1; 5000])
}

#[inline(never)]
fn book() -> Vec<Vec<u8>> {
    black_box((0..20).map(|_| page()).collect())
}

#[test]
fn top_has_the_sums_of_the_profile_and_the_line() {
    child::isolated("top_has_the_sums_of_the_profile_and_the_line", || {
        rtprof::set_mem_profile_rate(1);
        drop(book());
        rtprof::set_mem_profile_rate(0);
        let address = start();
        let table = text(address, "heap?format=top&sample_index=alloc_space");
        let row = |function: &str| {
            let row = table.lines().find(|line| line.split_whitespace().nth(5) == Some(function));
            row.unwrap_or_else(|| panic!("{function} in {table}")).split_whitespace().collect::<Vec<_>>()
        };
        let (page, book) = (concat!(module_path!(), "::page"), concat!(module_path!(), "::book"));
        let place = format!("{}:{LINE}", file!());
        let of_page = row(page);
        assert_eq!((of_page[0], of_page[3]), ("97.66kB", "97.66kB"), "20 pages of 5000 bytes: {table}");
        assert!(of_page[6].ends_with(&place), "{table}");
        let total: i64 = web::profile(address, "heap").samples().iter().map(|s| s.values[ALLOC_SPACE]).sum();
        let share = format!("{:.2}%", 100_000.0 * 100.0 / total as f64);
        assert_eq!((of_page[1], of_page[4]), (&*share, &*share), "{table}");
        // Its own vector has 20 elements.
        assert_eq!((row(book)[0], row(book)[3]), ("480B", "98.12kB"), "{table}");
        assert!(table.starts_with("File: readers-") && table.contains("\nType: alloc_space\n"), "{table}");

        // Without samples a comment says why.
        let table = text(address, "mutex?format=top");
        assert!(table.contains("Showing top 0 functions out of 0, 0ns total"), "{table}");
        assert!(table.contains("\n# rtprof: "), "{table}");
    });
}

fn is_of_program(frame: &Frame) -> bool {
    let is_elsewhere =
        ["/registry/src/", "/rustc/", "/library/"].iter().any(|part| frame.file.contains(part));
    !frame.file.is_empty() && !is_elsewhere && !frame.function.starts_with("rtprof")
}

#[inline(never)]
fn buffer() -> BytesMut {
    black_box(BytesMut::with_capacity(7000))
}

#[test]
fn stacks_begin_at_the_programs_code() {
    child::isolated("stacks_begin_at_the_programs_code", || {
        rtprof::set_mem_profile_rate(1);
        let _kept = buffer();
        // Its threads allocate too, in stacks that have only tokio's code.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        runtime.block_on(runtime.spawn(async {})).expect("it ends");
        drop(runtime);
        rtprof::set_mem_profile_rate(0);
        let address = start();
        let whole = web::profile(address, "heap");
        let of_program = web::profile(address, "heap?leaf=program");
        let sum = |samples: &[Sample]| samples.iter().map(|s| s.values[ALLOC_SPACE]).sum::<i64>();
        let (kept, left_out): (Vec<_>, Vec<_>) =
            whole.samples().into_iter().partition(|sample| sample.frames.iter().any(is_of_program));
        assert!(!left_out.is_empty(), "the test asks nothing");
        assert_eq!(sum(&of_program.samples()), sum(&kept));
        for sample in of_program.samples() {
            assert!(is_of_program(&sample.frames[0]), "{sample:?}");
        }
        let leaf_of = |profile: &Profile| {
            let samples = profile.samples_of(concat!(module_path!(), "::buffer"));
            samples[0].frames[0].function.clone()
        };
        assert!(leaf_of(&whole).starts_with("bytes::"), "{}", leaf_of(&whole));
        assert_eq!(leaf_of(&of_program), concat!(module_path!(), "::buffer"));
        let in_use = |samples: &[Sample]| samples.iter().map(|s| s.values[INUSE_SPACE]).sum::<i64>() as f64;
        let share = 100.0 * in_use(&left_out) / (in_use(&left_out) + in_use(&kept));
        let (plural, are) = if left_out.len() == 1 { ("", "is") } else { ("s", "are") };
        let comment = format!(
            "rtprof: {} stack{plural} without code of the program {are} left out, with {share:.1} % of inuse_space",
            left_out.len()
        );
        assert!(of_program.comments().contains(&comment), "{comment}: {}", of_program.comments());
        assert!(!whole.comments().contains("left out"), "{}", whole.comments());
        assert!(text(address, "heap?leaf=program&format=top").contains(&comment));
        assert!(text(address, "heap?leaf=program&debug=1").contains(&comment));
    });
}

#[inline(never)]
fn waits_for_a_lock(lock: &Mutex<u32>) {
    *lock.lock() += 1;
}

fn hold_a_lock() {
    let lock = Mutex::new(0);
    thread::scope(|scope| {
        let held = lock.lock();
        scope.spawn(|| waits_for_a_lock(&lock));
        until("the thread waits", || {
            rtprof::goroutine_profile().iter().any(|one| one.state.to_string() == "sync.Mutex.Lock")
        });
        drop(held);
    });
}

#[inline(never)]
fn waits_for_a_thread() {
    thread::spawn(|| std::thread::sleep(Duration::from_millis(2))).join().expect("it ends");
}

async fn waits_for_a_time() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

#[test]
fn waits_are_chosen_by_kind() {
    child::isolated("waits_are_chosen_by_kind", || {
        rtprof::set_block_profile_rate(1);
        hold_a_lock();
        waits_for_a_thread();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(waits_for_a_time().instrument());
        rtprof::set_block_profile_rate(0);
        let address = start();
        for (kinds, expected) in [
            ("sync", [true, false, false]),
            ("join", [false, true, false]),
            ("await", [false, false, true]),
            ("await,sync", [true, false, true]),
            ("sync,join,await,sleep", [true, true, true]),
        ] {
            let profile = web::profile(address, &format!("block?kinds={kinds}"));
            let has = ["waits_for_a_lock", "waits_for_a_thread", "waits_for_a_time"]
                .map(|function| !profile.samples_of(function).is_empty());
            assert_eq!(has, expected, "{kinds}");
            let is_missing = profile.comments().contains("waits of the kinds sleep are not recorded");
            assert_eq!(is_missing, kinds.contains("sleep"), "{kinds}: {}", profile.comments());
        }
        rtprof::set_block_profile_kinds(BlockKinds::ALL);
        let comments = web::profile(address, "block?kinds=sleep").comments();
        assert!(!comments.contains("not recorded"), "{comments}");
    });
}
