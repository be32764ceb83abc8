use super::*;

fn begun(id: u32, now: u64, first: u64) -> Option<&'static CpuThread> {
    CpuThread::begin(id, Start { now, first, before: 0 }, 1000)
}

#[test]
fn a_thread_has_one_slot() {
    let slot = begun(u32::MAX, 0, 1).unwrap();
    assert!(begun(u32::MAX, 0, 1).is_none());
    slot.end();
    begun(u32::MAX, 0, 1).unwrap().end();
}

#[test]
fn a_signal_that_was_sent_to_another_is_not_its_own() {
    let id = kernel_thread_id();
    let slot = begun(id, 0, 1).unwrap();
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
    let other = begun(id, 0, 1).unwrap();
    assert!(!core::ptr::eq(other, slot), "the handler still has it");
    slot.give_back();
    other.end();
}

/// A thread attaches itself while the sampler thread attaches it.
#[test]
fn of_two_slots_of_a_thread_one_stays_at_most() {
    for id in 3_000_000_000..3_000_003_000_u32 {
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(move || begun(id, 0, 1).is_some());
            [begun(id, 0, 1).is_some(), other.join().unwrap()]
        });
        let slots: Vec<_> = SLOTS.iter().filter(|slot| slot.id() == id).collect();
        assert_eq!(slots.len(), both.iter().filter(|has| **has).count());
        assert!(slots.len() <= 1);
        slots.into_iter().for_each(CpuThread::end);
    }
}
