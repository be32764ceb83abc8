use super::*;

#[test]
fn a_moment_early_or_late_is_on_time() {
    let periods = |nanos| periods(nanos, 1000);
    assert_eq!([990, 1010, 1490, 1510, 4000].map(periods), [1, 1, 1, 2, 4]);
    assert_eq!([-5, 0, 400].map(periods), [0, 0, 0]);
}

fn begun(id: u32, now: u64, first: u64, before: u64) -> Option<&'static CpuThread> {
    CpuThread::begin(id, Start { now, first, before }, 1000)
}

#[test]
fn the_first_period_is_a_part_and_counts_as_one() {
    let slot = begun(u32::MAX, 5_000, 300, 0).unwrap();
    let charged = || slot.charged.load(Ordering::Relaxed);
    assert_eq!(charged(), 4_300, "so that it is over at 5300");
    assert_eq!([5_299, 5_300, 6_299, 6_300].map(|now| slot.missed(now, 1000)), [0, 1, 1, 2]);
    assert_eq!([5_299, 5_300, 6_200].map(|now| slot.until_due(now, 1000)), [1, 1000, 100]);
    let settle = |(now, least)| slot.settle(now, 1000, least);
    assert_eq!([(6_299, 2), (6_300, 2), (6_300, 2), (7_299, 1), (7_300, 1)].map(settle), [0, 2, 0, 0, 1]);
    assert_eq!((charged(), slot.missed(0, 1000)), (7_300, 0));
    assert!(begun(u32::MAX, 0, 1, 0).is_none(), "it has one");
    slot.end();
    let slot = begun(u32::MAX, 5_000, 300, 5).unwrap();
    assert_eq!(slot.missed(5_300, 1000), 6, "those before it was found are the first sample's");
    slot.end();
}

#[test]
fn a_signal_that_was_sent_to_another_is_not_its_own() {
    let id = kernel_thread_id();
    let slot = begun(id, 0, 1, 0).unwrap();
    slot.fd.store(70_001, Ordering::Relaxed);
    let is_own = |cause| CpuThread::of(cause).is_some_and(|(found, _)| core::ptr::eq(found, slot));
    assert!(is_own(Cause::Event(70_000)) && is_own(Cause::Timer(slot.number())));
    assert!(is_own(Cause::Event(70_000)), "as remembered");
    assert!(!is_own(Cause::Event(70_001)));
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!is_own(Cause::Event(70_000)), "of another thread"));
    });
    let (_, found) = CpuThread::of(Cause::Event(70_000)).unwrap();
    slot.fd.store(0, Ordering::Relaxed);
    slot.retire();
    assert!(!is_own(Cause::Event(70_000)) && found == id, "it was ended under a handler");
    let other = begun(id, 0, 1, 0).unwrap();
    assert!(!core::ptr::eq(other, slot), "the handler still has it");
    slot.give_back();
    other.end();
}

/// A thread attaches itself while the collector attaches it.
#[test]
fn of_two_slots_of_a_thread_one_stays_at_most() {
    for id in 3_000_000_000..3_000_003_000_u32 {
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(move || begun(id, 0, 1, 0).is_some());
            [begun(id, 0, 1, 0).is_some(), other.join().unwrap()]
        });
        let slots: Vec<_> = SLOTS.iter().filter(|slot| slot.id() == id).collect();
        assert_eq!(slots.len(), both.iter().filter(|has| **has).count());
        assert!(slots.len() <= 1);
        slots.into_iter().for_each(CpuThread::end);
    }
}
