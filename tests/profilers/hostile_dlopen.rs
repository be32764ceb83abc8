//! Shared objects are loaded and unloaded while threads sample and profiles are written.
//!
//! A module list that is read in a hook, an unwind table that points into an unmapped file, or a rule cached for code
//! that is no longer mapped would each cause a crash or a wrong stack here.

use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rtprof::StackMode;
use test_support::folder;
use test_support::library::{Callback, Library, VARIANTS, build, compile, libraries};
use test_support::profile::{ALLOC_OBJECTS, Profile, Sample};
use test_support::{Background, child, processor, stress, workload};

#[inline(never)]
extern "C" fn called_from_c(_: *mut c_void) {
    black_box((1..20).map(|size| vec![0_u8; size * 50]).collect::<Vec<_>>());
}

#[inline(never)]
fn through_the_library(library: &Library) {
    library.call_back(called_from_c);
    black_box(());
}

/// If a library is loaded before sampling, the stack is whole, even through code without frame pointers.
#[test]
fn stack_goes_through_a_library() {
    let test = "stack_goes_through_a_library";
    let libraries = libraries(test);
    child::isolated(test, || {
        rtprof::set_stack_mode(StackMode::Unwind);
        let library = Library::open(&libraries[1]);
        // Modules are listed outside of the hooks, when a profile is written.
        rtprof::set_mem_profile_rate(1);
        black_box(Profile::heap());
        through_the_library(&library);
        rtprof::set_mem_profile_rate(0);
        let profile = Profile::heap();
        let samples = profile.samples_of("called_from_c");
        assert!(!samples.is_empty(), "the callback was sampled");
        for sample in samples {
            assert!(sample.has("through_the_library"), "broken in the library: {:#?}", sample.frames);
        }
        let name = libraries[1].to_string_lossy();
        let mapping = profile.mapping.iter().find(|mapping| profile.text(mapping.filename) == name);
        let mapping = mapping.expect("the library is among the mappings");
        assert!(!profile.text(mapping.build_id).is_empty(), "with its build id");
    });
}

/// A list that is read anew takes time in proportion to its length.
#[test]
fn many_libraries() {
    let test = "many_libraries";
    let library = &libraries(test)[0];
    child::isolated(test, || {
        let folder = folder::tmp().join("dlopen").join(test).join("many");
        std::fs::create_dir_all(&folder).expect("the build's own folder can be written");
        let mut loaded = Vec::new();
        // The time of a reading that finds this many new libraries.
        let mut time_of = |count: usize| {
            for _ in 0..count {
                let path = folder.join(format!("{}.so", loaded.len()));
                std::fs::copy(library, &path).expect("the build's own folder can be written");
                loaded.push(Library::open(&path));
                std::fs::remove_file(path).expect("it was just written");
            }
            let begin = processor::used();
            rtprof::refresh_modules();
            processor::used() - begin
        };
        let few = (0..4).map(|_| time_of(50)).min().expect("four times");
        let many = time_of(1000);
        assert!(many < few * 20 * 4, "{few:?} for 50 new ones, {many:?} for 1000");
    });
}

/// A library that was deleted or replaced on the disk while it is loaded, as by an update.
#[test]
fn a_library_whose_file_is_gone_is_in_a_comment() {
    let test = "a_library_whose_file_is_gone_is_in_a_comment";
    let libraries = libraries(test);
    child::isolated(test, || {
        let [kept, gone] = [&libraries[0], &libraries[1]];
        let loaded = [kept, gone].map(|path| Library::open(path));
        rtprof::refresh_modules();
        std::fs::remove_file(gone).expect("the build's own folder can be written");
        rtprof::set_mem_profile_rate(1);
        loaded.iter().for_each(through_the_library);
        rtprof::set_mem_profile_rate(0);
        let comments = Profile::heap().comments();
        let comment = format!("no names, because {} cannot be read", gone.display());
        assert!(comments.contains(&comment), "{comments}");
        assert_eq!(comments.matches("cannot be read").count(), 1, "{comments}");
    });
}

/// The symbols of a library come from a linker, and are to be trusted no more than any file.
#[test]
fn a_symbol_with_an_impossible_size_is_harmless() {
    let test = "a_symbol_with_an_impossible_size_is_harmless";
    let directory = folder::tmp().join("dlopen").join(test);
    let damaged = directory.join("libdamaged.so");
    if !child::any() {
        build(&directory);
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-DDAMAGED"]);
        compile(command, &directory.join("callback.c"), damaged.clone());
    }
    child::isolated(test, || {
        rtprof::set_stack_mode(StackMode::Unwind);
        let library = Library::open(&damaged);
        black_box(Profile::heap());
        rtprof::set_mem_profile_rate(1);
        through_the_library(&library);
        rtprof::set_mem_profile_rate(0);
        let samples = Profile::heap().samples_of("called_from_c");
        assert!(!samples.is_empty(), "the callback was sampled");
        for sample in samples {
            let is_named = sample.has("call_back") || sample.has("endless");
            assert!(is_named && sample.has("through_the_library"), "{:#?}", sample.frames);
        }
    });
}

#[test]
fn load_and_unload_while_sampling() {
    let test = "load_and_unload_while_sampling";
    let libraries = libraries(test);
    for mode in [StackMode::Unwind, StackMode::FramePointers] {
        child::isolated_as(test, &format!("{mode:?}"), || {
            let is_without_frame_pointers = rtprof::stack_mode() == StackMode::Unwind;
            rtprof::set_stack_mode(mode);
            rtprof::set_mem_profile_rate(64);
            let background = Background::default();
            std::thread::scope(|scope| {
                let background = &background;
                let _ends = background.ends_here();
                scope.spawn(|| background.repeat(workload::every_kind));
                scope.spawn(|| background.repeat(|| drop(black_box(Profile::heap()))));
                scope.spawn(|| background.repeat(|| drop(black_box(rtprof::mem_profile(true)))));
                let (started, mut rounds) = (Instant::now(), 0);
                while started.elapsed() < stress() || rounds < 20 {
                    // Two libraries at a time, in changing order, so that they reuse each other's addresses.
                    let first = Library::open(&libraries[rounds % VARIANTS]);
                    let second = Library::open(&libraries[(rounds * 3 + 1) % VARIANTS]);
                    through_the_library(&first);
                    drop(first);
                    through_the_library(&second);
                    rounds += 1;
                }
                println!("{rounds} rounds");
            });
            let totals = Profile::heap().totals_of("called_from_c");
            // In a build without frame pointers a walk along them ends before any function with a name.
            let is_blind = is_without_frame_pointers && matches!(mode, StackMode::FramePointers);
            assert!(totals[ALLOC_OBJECTS] > 0 || is_blind, "the callback was sampled");
        });
    }
}

#[inline(never)]
extern "C" fn called_from_a(_: *mut c_void) {
    black_box(vec![0_u8; 100]);
}

#[inline(never)]
extern "C" fn called_from_b(_: *mut c_void) {
    black_box(vec![0_u8; 200]);
}

#[inline(never)]
extern "C" fn called_from_either(_: *mut c_void) {
    black_box(vec![0_u8; 300]);
}

/// The calls after a library is loaded, and after it is unloaded.
type Readings = [fn(); 2];

/// Loads two libraries, A and B, one after the other at the same address, each of which calls back. B stays loaded.
fn two_libraries_at_one_place(test: &str, [loaded, unloaded]: Readings, check: impl Fn(&Profile, u64)) {
    let directory = folder::tmp().join("dlopen").join(test);
    let [a, b] = ["a", "b"].map(|name| directory.join(format!("libonly{name}.so")));
    if !child::any() {
        std::fs::create_dir_all(&directory).expect("the build's own folder can be written");
        let source = directory.join("only_in.c");
        std::fs::write(&source, include_str!("../fixtures/only_in.c"))
            .expect("the build's own folder can be written");
        for (name, into) in [("a", &a), ("b", &b)] {
            let mut command = Command::new("cc");
            command.args(["-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"]);
            command.arg(format!("-DNAME=only_in_{name}"));
            compile(command, &source, into.clone());
        }
    }
    let parts: [(&Path, &CStr, Callback); 2] =
        [(&a, c"only_in_a", called_from_a), (&b, c"only_in_b", called_from_b)];
    child::isolated(test, || {
        rtprof::refresh_modules();
        rtprof::set_mem_profile_rate(1);
        let mut last = black_box(None);
        // Another mapping may take the place of the first library before the second one is loaded.
        let met = (0..100).find_map(|_| {
            let mut places = black_box(Vec::new());
            for &(path, function, callback) in black_box(&parts[..]) {
                if last.take().is_some() {
                    unloaded();
                }
                let library = Library::open(path);
                loaded();
                library.call_back_through(function, called_from_either);
                places.push(library.call_back_through(function, callback));
                last = Some(library);
                // The optimizer must not distinguish the first round from the second: stacks would differ.
                black_box((&mut last, &mut places));
            }
            (places[0] == places[1]).then_some(places[0].addr() as u64)
        });
        rtprof::set_mem_profile_rate(0);
        let met = met.expect("the libraries had the same place at last");
        let profile = Profile::heap();
        for (function, other) in [("called_from_a", "only_in_b"), ("called_from_b", "only_in_a")] {
            let samples = profile.samples_of(function);
            assert!(!samples.is_empty(), "{function} was sampled");
            for sample in samples {
                assert!(!sample.has(other), "a wrong name: {:#?}", sample.frames);
            }
        }
        assert!(!profile.samples_of("called_from_either").is_empty(), "it was sampled");
        check(&profile, met);
    });
}

fn export() {
    black_box(Profile::heap());
}

fn is_named(profile: &Profile, met: u64) {
    for (function, owner) in [("called_from_a", "only_in_a"), ("called_from_b", "only_in_b")] {
        for sample in profile.samples_of(function) {
            assert!(sample.has(owner), "no name: {:#?}", sample.frames);
        }
    }
    // Equal stacks are one record, whichever library they were captured in. The stacks of earlier rounds were
    // different.
    let is_of_both = |sample: &Sample| sample.frames.iter().any(|f| (met..met + 256).contains(&f.address));
    let of_either = profile.samples_of("called_from_either");
    assert!(of_either.iter().any(is_of_both), "a stack of both libraries");
    for sample in of_either.iter().filter(|sample| is_of_both(sample)) {
        assert!(!sample.has("only_in_a") && !sample.has("only_in_b"), "of both: {:#?}", sample.frames);
    }
    names_both(profile, met);
}

fn names_both(profile: &Profile, _met: u64) {
    let comments = profile.comments();
    for library in ["libonlya.so", "libonlyb.so"] {
        assert!(comments.contains(library), "{comments}");
    }
}

/// Each stack has the names of the library that was loaded when the stack was captured, if the program reports its
/// libraries.
#[test]
fn a_stack_has_the_names_of_its_library() {
    let test = "a_stack_has_the_names_of_its_library";
    two_libraries_at_one_place(test, [rtprof::refresh_modules; 2], is_named);
}

#[test]
fn exports_tell_libraries_apart() {
    two_libraries_at_one_place("exports_tell_libraries_apart", [export; 2], is_named);
}

/// If the stacks of the two libraries cannot be told apart, they have no names, and a comment lists both libraries.
#[test]
fn both_candidates_are_in_a_comment() {
    let test = "both_candidates_are_in_a_comment";
    two_libraries_at_one_place(test, [rtprof::refresh_modules, || {}], names_both);
}

/// A library that no export has seen is not confused with the one loaded after it.
#[test]
fn a_library_that_was_never_seen_has_no_names() {
    let test = "a_library_that_was_never_seen_has_no_names";
    two_libraries_at_one_place(test, [|| {}; 2], |profile, _met| {
        let comments = profile.comments();
        assert!(comments.contains("libonlyb.so or a library that was unloaded"), "{comments}");
    });
}

/// A library is overwritten in place while it is loaded, as by a build or `cp`: we must not touch pages that the
/// program does not touch.
#[test]
fn a_library_that_is_cut_is_no_reason_to_die() {
    let test = "a_library_that_is_cut_is_no_reason_to_die";
    let libraries = libraries(test);
    child::isolated(test, || {
        rtprof::set_mem_profile_rate(1);
        let [before, after] = [&libraries[0], &libraries[1]];
        let known = Library::open(before);
        rtprof::refresh_modules();
        let unknown = Library::open(after);
        for path in [before, after] {
            std::fs::write(path, b"").expect("the build's own folder can be written");
        }
        rtprof::refresh_modules();
        drop(Library::open(&libraries[2]));
        rtprof::refresh_modules();
        workload::every_kind();
        assert!(!Profile::heap().samples_of("every_kind").is_empty());
        // Unloading them would read their files.
        std::mem::forget((known, unknown));
        // SAFETY: ends the process without the loader's destructors, which would read the files too.
        unsafe { libc::_exit(0) };
    });
}
