use super::super::{MAX_STACK, capture};
use super::*;
use crate::lock::fork_lock::ForkLock;

/// Serialises the tests, because one of them takes all stacks.
fn alone() -> impl Drop {
    static ALONE: ForkLock = ForkLock::new();
    crate::init::open();
    ALONE.lock()
}

fn frames() -> Vec<usize> {
    let mut frames = [0; MAX_STACK];
    let depth = capture(&mut frames);
    frames[..depth].to_vec()
}

#[inline(never)]
fn both() -> [Vec<usize>; 2] {
    let direct = frames();
    let spare = elsewhere(|| {
        let sp = super::super::registers::registers().sp;
        assert!(start_of(sp).is_some());
        assert!(start_of(sp - super::super::unwind::OWN_STACK).is_some());
        with_room(frames).expect("the same stack")
    });
    [direct, spare.expect("one is free")]
}

#[test]
fn what_is_captured_on_a_spare_stack_is_the_stack_of_the_caller() {
    let _alone = alone();
    let [direct, spare] = both();
    // The frames in this module differ; from the caller of `both` outwards they are the same.
    let common = direct.iter().rev().zip(spare.iter().rev()).take_while(|(a, b)| a == b).count();
    assert!(common >= 4 && common + 4 >= direct.len(), "{common} of {direct:x?} and {spare:x?}");
}

fn blocked() -> u64 {
    let mut now = 0_u64;
    let none = core::ptr::null::<u64>();
    // SAFETY: the call only reads the mask.
    let n = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut now, size_of::<u64>())
    };
    assert_eq!(n, 0);
    now
}

#[test]
fn signals_wait_until_the_program_is_on_its_stack_again() {
    let _alone = alone();
    let before = blocked();
    let inside = elsewhere(blocked).expect("one is free");
    // SIGKILL and SIGSTOP cannot be blocked.
    assert_eq!(inside.count_ones(), 62);
    assert_eq!(blocked(), before);
}

#[test]
fn with_all_taken_nothing_runs_and_it_is_counted() {
    fn take_all(held: usize) -> usize {
        let registers = super::super::registers::registers();
        let start = Start { registers, stack: bounds::of_stack_at(registers.sp) };
        imp::run(start, || take_all(held + 1)).unwrap_or_else(|| {
            let before = WITHOUT_ROOM.get();
            let none = || elsewhere(|| unreachable!("no stack is free")).is_none();
            assert!(std::thread::scope(|scope| scope.spawn(none).join()).expect("it ends well"));
            assert_eq!(WITHOUT_ROOM.get(), before + 1);
            held
        })
    }
    let _alone = alone();
    assert!((4..=16).contains(&take_all(0)));
    assert_eq!(elsewhere(|| 7), Some(7), "they are free again");
}
