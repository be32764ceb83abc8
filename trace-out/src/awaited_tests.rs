use super::*;

#[track_caller]
fn check(expected: Awaited, names: &[&str]) {
    assert_eq!(awaited(names.iter().copied()), expected, "{names:?}");
}

#[test]
fn the_innermost_library_decides() {
    use Awaited::{Wait, Yield};
    check(
        Wait(WaitReason::ChanReceive),
        &[
            "<tokio::sync::mpsc::chan::Rx<T, S>>::recv",
            "<tokio::sync::mpsc::bounded::Receiver<T>>::recv::{closure#0}",
            "app::worker::{closure#0}",
            "<tokio::time::timeout::Timeout<T> as core::future::future::Future>::poll",
        ],
    );
    check(
        Wait(WaitReason::ChanSend),
        &[
            "<tokio::sync::batch_semaphore::Acquire as core::future::future::Future>::poll",
            "<tokio::sync::mpsc::bounded::Sender<T>>::reserve_inner::{{closure}}",
            "app::worker::{closure#0}",
        ],
    );
    check(
        Wait(WaitReason::Sync),
        &[
            "<tokio::sync::batch_semaphore::Acquire as core::future::future::Future>::poll",
            "<tokio::sync::mutex::Mutex<T>>::acquire::{{closure}}",
            "app::sends::{closure#0}",
            "tokio::sync::mpsc::sends",
        ],
    );
    let replies = "<tokio::sync::mpsc::bounded::Receiver<tokio::sync::oneshot::Sender<u8>>>::recv";
    check(Wait(WaitReason::ChanReceive), &[replies]);
    check(Wait(WaitReason::ChanSend), &["<async_channel::SendInner<T> as EventListenerFuture>::poll_with"]);
    // Neither a deadline around it nor a task without a budget changes the result.
    let timeout = "<tokio::time::timeout::Timeout<T> as core::future::future::Future>::poll";
    for around in [timeout, "<tokio::task::coop::unconstrained::Unconstrained<F> as Future>::poll"] {
        check(
            Wait(WaitReason::CondWait),
            &["<tokio::sync::notify::Notified as Future>::poll", around, "app::f"],
        );
        check(Wait(WaitReason::Await), &["app::Leaf::poll", around, "app::f"]);
    }
    check(
        Wait(WaitReason::Sync),
        &[
            "<tokio::sync::watch::Receiver<T>>::changed::{{closure}}",
            "tokio::sync::barrier::Barrier::wait_internal",
        ],
    );
    check(
        Wait(WaitReason::ChanSend),
        &["tokio::sync::oneshot::Task::set_task", "<tokio::sync::oneshot::Sender<T>>::poll_closed"],
    );
    check(
        Wait(WaitReason::ChanSend),
        &["flume::async::AsyncSignal::new", "<flume::async::SendFut<T> as Future>::poll::{{closure}}"],
    );
    check(Wait(WaitReason::ChanSend), &["futures_channel::mpsc::BoundedSenderInner<T>::poll_unparked"]);
    check(Wait(WaitReason::ChanReceive), &["tokio::sync::oneshot::Task::set_task", "app::f"]);
    check(Wait(WaitReason::CondWait), &["<tokio::sync::notify::Notified as Future>::poll", "app::f"]);
    check(Wait(WaitReason::Net), &["tokio::runtime::io::scheduled_io::Readiness::poll", "hyper::x"]);
    check(Wait(WaitReason::Sleep), &["core::x", "<tokio::time::sleep::Sleep>::poll_elapsed"]);
    check(Wait(WaitReason::Sync), &["<tokio::runtime::task::join::JoinHandle<T> as Future>::poll"]);
    check(Yield, &["tokio::runtime::scheduler::defer::Defer::defer", "tokio::task::yield_now::yield_now"]);
    check(Wait(WaitReason::Await), &["app::Leaf::poll", "app::main"]);
    check(Wait(WaitReason::Await), &[]);
}

/// A stack from the root: functions, and the lines at which they call the next.
fn path(steps: &[(&str, u32)]) -> Path {
    let step =
        |&(function, line): &(&str, u32)| Step { function: function.into(), line, address: line as usize };
    steps.iter().rev().map(step).collect()
}

fn left(paths: &[Path]) -> (Awaited, usize) {
    decide(paths, |_| None)
}

#[test]
fn awaits_that_are_over_do_not_count() {
    let sleep = ("<tokio::time::sleep::Sleep>::poll", 7);
    let receive = ("<tokio::sync::mpsc::bounded::Receiver<T>>::recv::{{closure}}", 8);
    let read = ("tokio::runtime::io::scheduled_io::ScheduledIo::poll_readiness", 9);
    let (of, timeout) = ("app::serve::{{closure}}", "<tokio::time::timeout::Timeout<T> as Future>::poll");
    let (wait, receives) = (Awaited::Wait, Awaited::Wait(WaitReason::ChanReceive));
    // Two awaits, one after the other.
    let over = path(&[(of, 1), sleep]);
    assert_eq!(left(&[over.clone(), path(&[(of, 2), receive])]), (receives, 1));
    assert_eq!(left(&[path(&[(of, 2), receive]), over.clone()]), (wait(WaitReason::Sleep), 1));
    // An await with a deadline, after an await that is over.
    let with_deadline =
        [over.clone(), path(&[(of, 2), (timeout, 1), receive]), path(&[(of, 2), (timeout, 2), sleep])];
    assert_eq!(left(&with_deadline), (receives, 1));
    // One of several, in a macro at one line.
    let poll_fn = "<core::future::poll_fn::PollFn<F> as core::future::future::Future>::poll";
    let branch = |leaf| path(&[(of, 3), (poll_fn, 1), ("app::serve::{{closure}}::{{closure}}", 3), leaf]);
    let select = wait(WaitReason::Select);
    assert_eq!(left(&[over.clone(), branch(receive), branch(read), branch(sleep)]), (select, 1));
    assert_eq!(left(&[branch(read), branch(sleep)]), (wait(WaitReason::Net), 0));
    assert_eq!(
        left(&[
            branch(sleep),
            path(&[(of, 3), (poll_fn, 1), ("app::serve::{{closure}}::{{closure}}", 4), sleep])
        ])
        .0,
        wait(WaitReason::Sleep)
    );
    // Without line numbers: a timer is either over, or a deadline.
    let at = |address, place: usize, mut path: Path| {
        path[place].address = address;
        path
    };
    let bare = |address, leaf| at(address, 1, path(&[(of, 0), leaf]));
    assert_eq!(left(&[bare(1, sleep), bare(2, receive)]), (receives, 1));
    assert_eq!(left(&[bare(1, receive), bare(2, sleep)]), (receives, 0));
    // `futures::select!` in a debug build: closures that a closure calls.
    let chosen = |line, leaf| {
        let names =
            ["app::serve::{{closure}}::{{closure}}", "app::serve::{{closure}}::{{closure}}::{{closure}}"];
        path(&[
            (of, 3),
            (poll_fn, 1),
            (names[0], 3),
            ("core::ops::function::impls::call_mut", 1),
            (names[1], line),
            leaf,
        ])
    };
    assert_eq!(left(&[chosen(4, receive), chosen(5, receive)]), (select, 0));
    // The same future twice, at one line of a macro.
    assert_eq!(left(&[at(1, 1, branch(receive)), at(2, 1, branch(receive))]), (select, 0));
    // The same, inlined in the function that polls it.
    let inlined = |address| at(address, 2, at(address, 1, branch(receive)));
    assert_eq!(left(&[inlined(1), inlined(2)]), (select, 0));
    // The same, with a part of the future.
    let deeper = |address| {
        let chain = [(of, 3), (poll_fn, 1), ("app::serve::{{closure}}::{{closure}}", 3), receive];
        let mut path = path(&[&chain[..], &[("<tokio::sync::mpsc::chan::Rx<T, S>>::recv", 9)]].concat());
        path[1..4].iter_mut().for_each(|step| step.address = address);
        path
    };
    assert_eq!(left(&[deeper(1), deeper(2)]), (select, 0));
    // Two awaits, one after the other, of which a part is inlined.
    let after_each_other = |line| {
        let mut path = path(&[(of, line), receive, ("<tokio::sync::mpsc::chan::Rx<T, S>>::recv", 9)]);
        path[1..3].iter_mut().for_each(|step| step.address = line as usize);
        path
    };
    assert_eq!(left(&[after_each_other(1), after_each_other(2)]), (receives, 1));
    assert_eq!(left(&[]), (UNKNOWN, 0));
}

#[test]
fn what_the_program_tells_is_of_its_stacks() {
    let (net, select) = (Awaited::Wait(WaitReason::Net), Awaited::Wait(WaitReason::Select));
    let poll_fn = "<core::future::poll_fn::PollFn<F> as core::future::future::Future>::poll";
    let branch = |leaf| {
        path(&[("app::f::{{closure}}", 3), (poll_fn, 1), ("app::f::{{closure}}::{{closure}}", 3), leaf])
    };
    let of = [
        branch(("app::Device::poll", 4)),
        branch(("<tokio::time::sleep::Sleep>::poll", 5)),
        branch(("<tokio::sync::mpsc::chan::Rx<T, S>>::recv", 6)),
    ];
    let first = |at| (at == 0).then_some(net);
    assert_eq!(decide(&of[..2], first), (net, 0));
    assert_eq!(decide(&of, first), (select, 0));
    // A timer with another announced reason, and a leaf announced as a timer.
    assert_eq!(decide(&of[..2], |at| (at == 1).then_some(net)), (select, 0));
    // Without symbols.
    let unnamed = [Path::new(), Path::new()];
    assert_eq!(decide(&unnamed, first), (net, 0));
    assert_eq!(decide(&unnamed, |_| None).0, select);
    let left = |declared| SuspendedPoll { stacks: [7, 8, 0, 0, 0], reason: WaitReason::Await, declared };
    assert_eq!(left(DeclaredReasons::NOTHING.and(0, WaitReason::Net)).without_names(), (net, 7));
    assert_eq!(left(DeclaredReasons::NOTHING).without_names(), (UNKNOWN, 8));
    // An await that is over.
    let over = [
        path(&[("app::f::{{closure}}", 1), ("app::x", 1)]),
        path(&[("app::f::{{closure}}", 2), ("app::y", 1)]),
    ];
    assert_eq!(decide(&over, |_| Some(net)), (net, 1));
}
