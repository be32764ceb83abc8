use super::*;

#[path = "prune_hook_tests.rs"]
mod hooks;

const LIBRARY: Origin = Origin::Library;
const PROGRAM: Origin = Origin::Elsewhere;

#[test]
fn the_programs_code_is_never_hidden() {
    for name in [
        "<&app::Matrix as core::ops::arith::Add>::add",
        "<alloc::vec::Vec<u8> as app::Ext>::grow",
        "<alloc::vec::Vec<u8> as core::convert::From<app::Foo>>::from",
        "<dyn app::Tr>::work",
        "<T as app::Index>::add",
        "<(app::A, u8) as app::Index>::add",
        "core::store::insert",
        "alloc::raw_vec::lookalike",
    ] {
        assert_eq!(classify(name, PROGRAM, true), Class::Shown, "{name}");
    }
    // Without a file only names that no other code has.
    assert_eq!(classify("alloc::raw_vec::finish_grow", Origin::Unknown, false), Class::Layer);
    assert_eq!(classify("<alloc::vec::Vec<u8>>::push", Origin::Unknown, false), Class::Shown);
    // Code of ours that runs the program's code.
    assert_eq!(classify("rtprof_runtime::labels::do_with", PROGRAM, false), Class::Shown);
}

fn cut_of(machinery: Machinery, stack: &[Vec<Class>]) -> Cut {
    let entry = match machinery {
        Machinery::Allocator => stack.iter().rposition(|classes| entry_lines(classes) > 0),
        Machinery::Hooks => None,
    };
    cut(machinery, stack.len(), entry, |frame| &stack[frame])
}

/// Returns the visible part of an allocation's stack.
fn shown(stack: &[&[&str]]) -> Vec<String> {
    shown_of(Machinery::Allocator, stack)
}

/// Returns the visible part of a wait's stack.
fn waiting(stack: &[&[&str]]) -> Vec<String> {
    shown_of(Machinery::Hooks, stack)
}

fn shown_of(machinery: Machinery, stack: &[&[&str]]) -> Vec<String> {
    let classes: Vec<Vec<Class>> =
        stack.iter().map(|lines| lines.iter().map(|name| classify(name, LIBRARY, true)).collect()).collect();
    let cut = cut_of(machinery, &classes);
    let mut names = Vec::new();
    for (frame, lines) in stack.iter().enumerate().skip(cut.frames) {
        let hidden = if frame == cut.frames { cut.lines } else { 0 };
        names.extend(lines[hidden..].iter().map(|name| name.to_string()));
    }
    names
}

#[test]
fn classes_of_real_names() {
    use Class::*;
    for (name, class) in [
        ("__rust_alloc", Entry),
        ("__rustc::__rust_alloc", Entry),
        ("__rustc::__rust_alloc_zeroed", Entry),
        ("__rustc::__rust_realloc", Entry),
        ("__rustc::__rg_alloc", Entry),
        ("__rg_realloc", Entry),
        ("__rdl_alloc", Entry),
        ("__rustc::__rust_no_alloc_shim_is_unstable_v2", Entry),
        ("<rtprof_allocator::ProfAlloc<A> as core::alloc::global::GlobalAlloc>::alloc", Entry),
        (
            "<counting::Counting<std::alloc::System> as core::alloc::global::GlobalAlloc>::realloc::{closure#0}",
            Entry,
        ),
        ("rtprof_allocator::sample::sampled_alloc", Entry),
        ("<rtprof_allocator::pool::Pool>::take", Entry),
        ("rtprof_runtime::stack::capture", Layer),
        ("<rtprof_profiler::mem::Record>::malloc", Layer),
        ("alloc::alloc::alloc", Layer),
        ("alloc::alloc::Global::alloc_impl", Layer),
        ("<alloc::alloc::Global as core::alloc::Allocator>::allocate", Layer),
        ("<alloc::alloc::Global>::alloc_impl_runtime", Layer),
        ("alloc::alloc::exchange_malloc", Layer),
        ("alloc::raw_vec::RawVec<T,A>::grow_one", Layer),
        ("<alloc::raw_vec::RawVec<u8>>::reserve::do_reserve_and_handle", Layer),
        ("<alloc::raw_vec::RawVecInner>::try_allocate_in", Layer),
        ("alloc::raw_vec::finish_grow", Layer),
        ("alloc::boxed::Box<T>::new", Layer),
        ("<alloc::boxed::Box<dyn core::ops::function::Fn(u8) -> alloc::vec::Vec<u8>>>::new", Layer),
        ("alloc::boxed::Box<T,A>::try_new_uninit_in", Layer),
        ("<alloc::boxed::Box<[u8]>>::new_uninit_slice", Layer),
        ("alloc::boxed::box_new::<app::Big>", Layer),
        ("alloc::boxed::box_new", Layer),
        ("alloc::boxed::box_new_uninit", Layer),
        ("core::alloc::layout::Layout::array::inner", Layer),
        ("hashbrown::raw::alloc::inner::do_alloc", Layer),
        ("hashbrown::alloc::inner::do_alloc::<hashbrown::alloc::inner::Global>", Layer),
        ("<alloc::vec::Vec<u8>>::push", Container),
        ("alloc::vec::Vec<T,A>::with_capacity_in", Container),
        ("<alloc::string::String as core::convert::From<&str>>::from", Container),
        ("<hashbrown::raw::RawTable<(u32, u32)>>::reserve_rehash", Container),
        ("std::collections::hash::map::HashMap<K,V,S>::insert", Container),
        ("alloc::sync::Arc<T>::new", Container),
        ("alloc::slice::hack::to_vec", Container),
        ("<[u8]>::to_vec", Container),
        ("<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec::<alloc::alloc::Global>", Container),
        ("<std::sys::os_str::bytes::Buf>::push_slice", Container),
        ("<&str as <std::ffi::os_str::OsString>::push::SpecPushTo>::spec_push_to", Container),
        ("<[app::T] as alloc::borrow::ToOwned>::to_owned", Container),
        ("<T as core::convert::Into<U>>::into", Container),
        ("<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once", Container),
        ("<alloc::boxed::Box<T> as core::clone::Clone>::clone", Container),
        // Over an allocation std's other functions are shown, and locks and channels too.
        ("<std::sys::fs::unix::InnerReadDir as core::clone::Clone>::clone", Library),
        ("std::io::read_to_end", Library),
        ("std::thread::local::LocalKey<T>::with", Library),
        ("std::panic::catch_unwind", Library),
        ("<lock_api::mutex::MutexGuard<R, T> as core::ops::drop::Drop>::drop", Hook),
        ("<rtprof_hooks::inner::mutex::QueueMutex>::lock_slow", Hook),
        // The drop of a guard counts as a container in every case, so that heap profiles stay the same.
        ("core::ptr::drop_in_place::<lock_api::mutex::MutexGuard<R, T>>", Container),
        // Methods of the program's types belong to the program, whichever crate defines the trait.
        ("<app::Posting as core::clone::Clone>::clone", Shown),
        // Programs with names similar to ours.
        ("rtprof_demo::main", Shown),
        ("app::rtprof_allocator::thing", Shown),
        ("app::__rust_alloc_lookalike", Shown),
        ("malloc_everything", Shown),
    ] {
        assert_eq!(classify(name, LIBRARY, true), class, "{name}");
        let unless_known = match class {
            Container if name.starts_with("core::ptr::drop_in_place::<lock_api::") => Hook,
            Container | Library => Shown,
            class => class,
        };
        assert_eq!(classify(name, LIBRARY, false), unless_known, "{name}: may hold the program's code");
    }
    // A sweep runs the program's code.
    let sweep = "rtprof_allocator::collector::sweep::<(), app::collect::{closure#0}>";
    assert_eq!(
        (classify(sweep, Origin::Unknown, true), classify(sweep, Origin::Unknown, false)),
        (Hook, Shown)
    );
    assert_eq!(classify("std::thread::lookalike", PROGRAM, true), Shown);
    assert_eq!(classify("__rust_try", Origin::Unknown, false), Library);
}

#[test]
fn containers_go_up_to_their_user_and_no_further() {
    assert_eq!(
        shown(&[
            &["__rust_alloc", "alloc::raw_vec::finish_grow"],
            &["<alloc::vec::Vec<u8>>::reserve", "<alloc::string::String as core::fmt::Write>::write_str"],
            &["core::fmt::write"],
            &["alloc::fmt::format", "app::describe"],
            &["core::iter::adapters::map::map_fold", "app::main"],
        ]),
        ["app::describe", "core::iter::adapters::map::map_fold", "app::main"]
    );
    assert_eq!(
        shown(&[&["__rust_alloc"], &["<alloc::vec::Vec<u8>>::push"], &["core::ops::function::call_once"]]),
        ["<alloc::vec::Vec<u8>>::push", "core::ops::function::call_once"],
        "containers alone stay"
    );
}

#[test]
fn debug_build() {
    assert_eq!(
        shown(&[
            &["rtprof_runtime::stack::capture"],
            &["rtprof_allocator::sample::sampled_alloc"],
            &["std::thread::local::LocalKey<T>::try_with"],
            &["<rtprof_allocator::ProfAlloc<A> as core::alloc::global::GlobalAlloc>::alloc"],
            &["__rustc::__rust_alloc"],
            &["alloc::alloc::alloc"],
            &["<alloc::alloc::Global>::alloc_impl"],
            &["<alloc::alloc::Global as core::alloc::Allocator>::allocate"],
            &["<alloc::raw_vec::RawVecInner>::try_allocate_in"],
            &["<alloc::vec::Vec<u8>>::with_capacity_in"],
            &["app::index"],
            &["app::main"],
        ]),
        ["app::index", "app::main"]
    );
}

#[test]
fn release_build_cuts_inside_an_address() {
    assert_eq!(
        shown(&[
            &["rtprof_runtime::stack::capture", "rtprof_allocator::sampled"],
            &[
                "<rtprof_allocator::ProfAlloc as core::alloc::global::GlobalAlloc>::alloc",
                "__rustc::__rg_alloc"
            ],
            &[
                "alloc::alloc::alloc",
                "<alloc::alloc::Global>::alloc_impl",
                "alloc::boxed::Box<T>::new",
                "app::leak",
                "app::main"
            ],
            &["std::rt::lang_start_internal"],
        ]),
        ["app::leak", "app::main", "std::rt::lang_start_internal"]
    );
}

#[test]
fn a_wrapper_allocator_of_the_program_is_machinery() {
    assert_eq!(
        shown(&[
            &["<rtprof_allocator::ProfAlloc as core::alloc::global::GlobalAlloc>::alloc"],
            &["counting::Counting::count_and_forward"],
            &["<counting::Counting as core::alloc::global::GlobalAlloc>::alloc"],
            &["__rust_alloc"],
            &["app::main"],
        ]),
        ["app::main"]
    );
}

#[test]
fn layers_in_the_middle_stay() {
    // The program's own code beneath a boxed call: only the leaf is hidden.
    assert_eq!(
        shown(&[
            &["__rust_alloc"],
            &["app::inner"],
            &["rtprof::pprof::do_with"],
            &["alloc::boxed::Box<T>::new"],
            &["app::main"],
        ]),
        ["app::inner", "rtprof::pprof::do_with", "alloc::boxed::Box<T>::new", "app::main"]
    );
}

#[test]
fn what_a_channel_allocates_is_its_users() {
    assert_eq!(
        shown(&[
            &["__rust_alloc", "alloc::raw_vec::finish_grow"],
            &["<alloc::collections::vec_deque::VecDeque<app::Job>>::grow"],
            &["<rtprof_hooks::sync::mpsc::Sender<app::Job>>::send", "app::submit"],
            &["app::main"],
        ]),
        ["app::submit", "app::main"]
    );
    assert_eq!(
        shown(&[&["__rust_alloc"], &["<rtprof_hooks::sync::once::Once>::call_once::<app::F>", "app::init"]]),
        ["app::init"]
    );
    // The program's closure, called by a hook.
    assert_eq!(
        shown(&[&["__rust_alloc"], &["app::F"], &["<rtprof_hooks::sync::once::Once>::call_once::<app::F>"]]),
        ["app::F", "<rtprof_hooks::sync::once::Once>::call_once::<app::F>"]
    );
    assert_eq!(
        shown(&[&["__rust_alloc"], &["std::thread::local::LocalKey<T>::with"], &["app::main"]]),
        ["std::thread::local::LocalKey<T>::with", "app::main"]
    );
}

#[test]
fn something_always_remains() {
    assert_eq!(
        shown(&[&["__rust_alloc"], &["alloc::alloc::alloc", "alloc::boxed::box_new"]]),
        ["alloc::boxed::box_new"]
    );
    assert_eq!(cut_of(Machinery::Allocator, &[]), Cut::NONE);
    // Without symbols the functions cannot be told apart, so nothing is hidden.
    assert_eq!(cut_of(Machinery::Allocator, &[vec![], vec![]]), Cut::NONE);
    // Named machinery with nameless addresses around it.
    let named = [vec![], vec![Class::Entry], vec![]];
    assert_eq!(cut_of(Machinery::Allocator, &named), Cut { frames: 2, lines: 0 });
}

#[test]
fn skipping_counts_lines() {
    let lines = [2, 0, 3];
    let skip = |n| skip_lines(Cut::NONE, n, 3, |frame| lines[frame]);
    assert_eq!(skip(0), Cut { frames: 0, lines: 0 });
    assert_eq!(skip(1), Cut { frames: 0, lines: 1 });
    assert_eq!(skip(2), Cut { frames: 1, lines: 0 });
    assert_eq!(skip(3), Cut { frames: 2, lines: 0 });
    assert_eq!(skip(5), Cut { frames: 2, lines: 2 });
    assert_eq!(skip(usize::MAX), Cut { frames: 2, lines: 2 });
}

#[test]
fn only_the_kernel_and_the_c_library_are_hidden_beneath_a_call() {
    use Class::{Call, Container, Hook, Interposed, Kernel, Layer, Shown};
    /// Where the C library's frames are, the first `foreign` ones, no class is known.
    fn cut(foreign: usize, stack: &[&[Class]]) -> Option<(usize, usize)> {
        let found = call_cut(stack.len(), |frame| stack[frame], |frame| frame < foreign);
        found.map(|cut| (cut.frames, cut.lines))
    }
    assert_eq!(cut(0, &[&[Kernel, Interposed, Call], &[Shown]]), Some((0, 2)));
    assert_eq!(cut(0, &[&[Kernel], &[Interposed], &[Call], &[Call, Shown]]), Some((3, 0)));
    assert_eq!(cut(2, &[&[], &[], &[Container, Interposed], &[Call], &[Shown]]), Some((3, 0)));
    // Code of ours, and what it calls in the C library.
    assert_eq!(cut(0, &[&[Hook], &[Interposed, Call], &[Shown]]), None);
    assert_eq!(cut(1, &[&[], &[Layer], &[Interposed, Call], &[Shown]]), None);
    // The program in the C library, also in a signal handler that has interrupted a call.
    assert_eq!(cut(1, &[&[], &[Shown]]), None);
    assert_eq!(cut(0, &[&[Shown], &[], &[Kernel, Call], &[Shown]]), None);
    assert_eq!(cut(1, &[&[]]), None);
}
