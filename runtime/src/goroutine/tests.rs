//! The registry as a whole: threads that come, go, die unnoticed, and fork.

use super::*;
use crate::goroutine::wait_reason::WaitReason;
use crate::init;
use crate::lock::fork_safe::ForkMutex;
use core::ptr::without_provenance;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

fn find(id: u64) -> Option<LiveGoroutine> {
    all().find(|goroutine| goroutine.id == id)
}

/// Starts a thread that passes its goroutine to `body`. Returns the handle to join.
fn foreign_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce(&'static Goroutine) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    init::open();
    thread::Builder::new().name(name.into()).spawn(|| body(current().expect("there is memory"))).unwrap()
}

fn wait(goroutine: &Goroutine, reason: WaitReason, since: u64) {
    goroutine.note_since(since);
    let word = goroutine.state();
    goroutine.change(word, word.next(State::Waiting(reason), 0)).unwrap();
}

#[test]
fn a_foreign_thread_is_known_from_its_first_hook_to_its_end() {
    let id = foreign_thread("foreign-thread", |goroutine| {
        assert_eq!(goroutine.name(), "foreign-thread");
        assert_eq!(goroutine.thread_id(), kernel_thread::thread_id());
        assert!(core::ptr::eq(goroutine, current().unwrap()));
        // SAFETY: the token was just taken from this goroutine.
        assert!(core::ptr::eq(goroutine, unsafe { Goroutine::from_token(goroutine.token()) }));
        let found = find(goroutine.id()).expect("it is live");
        assert_eq!((&*found.name, found.thread_id), ("foreign-thread", kernel_thread::thread_id()));
        assert!(found.created_by.is_none() && found.waiting.is_none());
        wait(goroutine, WaitReason::Barrier, 7);
        assert_eq!(find(goroutine.id()).unwrap().waiting, Some((WaitReason::Barrier, 7)));
        goroutine.id()
    })
    .join()
    .unwrap();
    assert!(find(id).is_none(), "goroutine {id} outlived its thread");
}

#[test]
fn a_registered_goroutine_ends_with_its_guard() {
    init::open();
    thread::spawn(|| {
        let bucket = crate::thread::thread_create::stack().unwrap();
        let guard = register(Some("named"), Origin { created_by: Some(bucket), ..Origin::default() });
        let goroutine = current().unwrap();
        let id = goroutine.id();
        let found = find(id).unwrap();
        assert_eq!(found.name, "named");
        assert!(core::ptr::eq(found.created_by.unwrap(), bucket));
        assert!(!format!("{found:?}").is_empty());

        let again = register(None, Origin::default());
        assert_eq!((goroutine.id(), goroutine.name().as_str()), (id, ""), "the same one, described anew");
        assert!(goroutine.created_by().is_none());
        wait(goroutine, WaitReason::Park, 1);
        drop(again);
        assert!(find(id).is_none());
        // The outer guard's goroutine is over. It must not end the one that has come after it.
        let next = current().unwrap().id();
        assert_ne!(next, id);
        assert_eq!(find(next).unwrap().waiting, None, "the slot's last wait is not the new one's");
        drop(guard);
        assert_eq!(current().unwrap().id(), next);
    })
    .join()
    .unwrap();
}

#[test]
fn a_panic_ends_it() {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        init::open();
        let _guard = register(Some("panics"), Origin::default());
        send.send(current().unwrap().id()).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(thread.join().is_err());
    assert!(find(receive.recv().unwrap()).is_none());
}

#[test]
fn a_storm_of_threads_needs_no_more_slots_than_live_at_once() {
    const AT_ONCE: usize = 8;
    const ROUNDS: usize = 150;
    init::open();
    let ids = ForkMutex::new(HashSet::new());
    let (before, done) = (slots_made(), AtomicUsize::new(0));
    let live = thread::scope(|s| {
        for starter in 0..AT_ONCE {
            let (ids, done) = (&ids, &done);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let body = move || {
                        let _guard =
                            (round % 2 == 0).then(|| register(Some("of the storm"), Origin::default()));
                        let goroutine = current().unwrap();
                        assert_eq!(
                            goroutine.thread_id(),
                            kernel_thread::thread_id(),
                            "another thread's slot"
                        );
                        goroutine.id()
                    };
                    let name = format!("storm-{starter}");
                    let id = thread::Builder::new().name(name).spawn(body).unwrap().join().unwrap();
                    assert!(ids.lock().unwrap().insert(id), "id {id} was given twice");
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut live = Vec::new();
        while done.load(Ordering::Relaxed) < AT_ONCE {
            live.extend(all());
        }
        live
    });
    assert_eq!(ids.lock().unwrap().len(), AT_ONCE * ROUNDS);
    // Each id appears with a consistent record: the name shows which kind of thread it was.
    let ids = ids.lock().unwrap();
    assert!(!live.is_empty());
    for goroutine in live.iter().filter(|goroutine| ids.contains(&goroutine.id)) {
        assert!(goroutine.name.starts_with("storm-") || goroutine.name == "of the storm", "{goroutine:?}");
    }
    assert!(all().all(|goroutine| !ids.contains(&goroutine.id)), "a goroutine outlived its thread");
    // A thread may still be in its destructors when the next one starts; other tests have threads too.
    let made = slots_made() - before;
    assert!(made <= 4 * AT_ONCE, "{made} slots for {AT_ONCE} at a time");
}

#[test]
fn a_thread_that_dies_without_notice_is_found_dead() {
    extern "C" fn dies(out: *mut libc::c_void) -> *mut libc::c_void {
        let own = current().unwrap();
        // SAFETY: `out` points to a local of the creator, which waits. The system call ends the thread without
        // destructors.
        unsafe {
            *out.cast::<(u64, u32)>() = (own.id(), own.thread_id());
            libc::syscall(libc::SYS_exit, 0);
        }
        core::ptr::null_mut()
    }
    init::open();
    let mut seen = (0_u64, 0_u32);
    // SAFETY: the thread is waited for, and no reference to its thread-locals is left.
    unsafe {
        let mut thread = core::mem::zeroed();
        let made = libc::pthread_create(&raw mut thread, core::ptr::null(), dies, (&raw mut seen).cast());
        assert_eq!(made, 0);
        assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
    }
    let (id, thread_id) = seen;
    assert_ne!(id, 0);
    kernel_thread::wait_until_gone(thread_id);
    let is_in_a_slot = || SLOTS.iter().any(|slot| slot.id() == id);
    assert!(find(id).is_none());
    assert!(!is_in_a_slot(), "the slot is free again");
}

#[test]
fn of_two_goroutines_with_one_thread_the_older_is_dead() {
    init::open();
    thread::spawn(|| {
        let slot = SLOTS.take().unwrap();
        let id = goroutine_id::reserve();
        let (thread_id, process) = (kernel_thread::thread_id(), own_process());
        slot.begin(Identity {
            id,
            thread_id,
            process,
            name: "before",
            origin: Origin::default(),
            state: StateWord::new(State::Running, 0),
        });
        let own = current().unwrap().id();
        assert!(own > id);
        assert!(find(own).is_some() && find(id).is_none());
        assert_ne!(slot.id(), id, "the slot is free again");
    })
    .join()
    .unwrap();
}

#[test]
fn a_goroutine_lasts_through_destructors_and_none_begins_after_the_last() {
    static SEEN: ForkMutex<Vec<Option<u64>>> = ForkMutex::new(Vec::new());
    static LATER: AtomicUsize = AtomicUsize::new(0);

    fn note() {
        SEEN.lock().unwrap().push(current().map(Goroutine::id));
    }
    extern "C" fn in_every_round(_: *mut libc::c_void) {
        note();
        // SAFETY: the key is made before the thread is, and never deleted.
        unsafe { libc::pthread_setspecific(LATER.load(Ordering::Relaxed) as u32, without_provenance(1)) };
    }
    struct Notes;
    impl Drop for Notes {
        fn drop(&mut self) {
            note();
        }
    }
    thread_local! {
        static NOTES: RefCell<Notes> = const { RefCell::new(Notes) };
    }

    init::open();
    let mut later = 0;
    // SAFETY: writes to a local. This key is made after our own, so its destructor runs after ours in every round.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut later, Some(in_every_round)) }, 0);
    LATER.store(later as usize, Ordering::Relaxed);
    let id = foreign_thread("dying", move |goroutine| {
        NOTES.with(|notes| drop(notes.borrow()));
        // SAFETY: the key is made above and never deleted.
        unsafe { libc::pthread_setspecific(later, without_provenance(1)) };
        goroutine.id()
    })
    .join()
    .unwrap();
    let own = Some(id);
    assert_eq!(*SEEN.lock().unwrap(), [own, own, own, own, None], "thread-local, then four rounds");
    assert!(find(id).is_none());
}

/// Runs `body` in a forked child and fails unless it is true there.
fn in_child(body: impl FnOnce() -> bool) {
    // SAFETY: the child only runs `body` and exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // A child that hangs is killed, and the test fails.
        // SAFETY: a plain system call.
        unsafe { libc::alarm(120) };
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has seen otherwise");
}

/// Returns the id of a goroutine on a thread made by libc. A thread made by std would wait for ever for a lock of std,
/// if another test was starting a thread when this process was forked.
fn id_of_new_thread() -> u64 {
    extern "C" fn tell(id: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `id` points to a local of the caller, which waits.
        unsafe { *id.cast::<u64>() = current().unwrap().id() };
        core::ptr::null_mut()
    }
    let (mut id, mut new) = (0_u64, 0);
    // SAFETY: both locals outlive the thread.
    unsafe {
        assert_eq!(libc::pthread_create(&raw mut new, core::ptr::null(), tell, (&raw mut id).cast()), 0);
        assert_eq!(libc::pthread_join(new, core::ptr::null_mut()), 0);
    }
    id
}

#[test]
fn a_forked_child_has_one_goroutine_under_its_new_number() {
    let (end, ends) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    let other = foreign_thread("other", move |goroutine| {
        began.send(goroutine.id()).unwrap();
        ends.recv().ok();
    });
    let other_id = begins.recv().unwrap();
    foreign_thread("forks", move |goroutine| {
        let (id, parents) = (goroutine.id(), goroutine.thread_id());
        in_child(|| {
            let told =
                goroutine.thread_id() == kernel_thread::thread_id() && kernel_thread::thread_id() != parents;
            let live: Vec<_> = all().map(|goroutine| (goroutine.id, goroutine.thread_id)).collect();
            // The slots of goroutines that do not exist in the child serve the child's own threads.
            let made = slots_made();
            let new = id_of_new_thread();
            told && live == [(id, kernel_thread::thread_id())] && new > other_id && slots_made() == made
        });
        assert_eq!(goroutine.thread_id(), parents);
    })
    .join()
    .unwrap();
    assert!(find(other_id).is_some(), "the parent's are as they were");
    drop(end);
    other.join().unwrap();
}

#[test]
fn a_thread_that_first_registers_in_a_child_is_new_there() {
    init::open();
    thread::spawn(|| {
        in_child(|| {
            let own = current().unwrap();
            let live: Vec<_> = all().map(|goroutine| goroutine.id).collect();
            own.thread_id() == kernel_thread::thread_id() && live == [own.id()]
        });
    })
    .join()
    .unwrap();
}
