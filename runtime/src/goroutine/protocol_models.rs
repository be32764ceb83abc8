//! Models of the protocol: a stack is read by one thread at a time, and a goroutine is recorded at most once.

use super::*;
use crate::stack::SavedFrame;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

const PROCESS: u32 = 7;
const AT: ParkedAt = ParkedAt { frame: SavedFrame { ip: 1, sp: 2, fp: 3 }, end: 4 };

/// A goroutine with a stack, and a snapshot with room for one record.
struct World {
    snapshots: Snapshots,
    progress: Progress,
    parked: Parked,
    stack: UnsafeCell<u32>,
    record: UnsafeCell<u32>,
    records: AtomicU32,
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for World {}
// SAFETY: loom checks every access to the cells.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            snapshots: Snapshots::new(),
            progress: Progress::default(),
            parked: Parked::default(),
            stack: UnsafeCell::new(0),
            record: UnsafeCell::new(0),
            records: AtomicU32::new(0),
        })
    }

    fn record(&self) {
        let stack = self.stack.with(|stack| unsafe { *stack });
        self.record.with_mut(|record| unsafe { *record = stack + 1 });
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits and then runs again, which changes the stack.
    fn wait(&self) {
        self.parked.begin(AT);
        self.parked.end();
        self.snapshots.before_running(&self.progress, || PROCESS, || Some(|| self.record()));
        self.stack.with_mut(|stack| unsafe { *stack += 1 });
    }

    /// Takes a snapshot and returns its number of records.
    fn snapshot(&self) -> u32 {
        let before = self.records.load(Ordering::Relaxed);
        let number = self.snapshots.publish(PROCESS);
        self.progress.visit(number, &self.parked, |at| {
            assert_eq!(at, AT);
            self.record();
        });
        self.snapshots.withdraw();
        self.progress.close(number);
        // After `close` the memory belongs to the coordinator again.
        self.record.with_mut(|record| unsafe { *record = 0 });
        self.records.load(Ordering::Relaxed) - before
    }
}

/// No thread reads a stack while its owner runs, no goroutine records itself after the end, and none is recorded twice.
#[test]
fn loom_a_stack_is_read_by_one_and_stays_meanwhile() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let world = World::new();
        let goroutine = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.wait();
                world.wait();
            })
        };
        let records = world.snapshot();
        assert!(records <= 1, "{records} records of one goroutine");
        goroutine.join().unwrap();
    });
}

/// The same over the end of one snapshot and the beginning of the next.
#[test]
fn loom_two_snapshots_do_not_mix() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let world = World::new();
        let goroutine = {
            let world = world.clone();
            loom::thread::spawn(move || world.wait())
        };
        for _ in 0..2 {
            let records = world.snapshot();
            assert!(records <= 1, "{records} records of one goroutine");
        }
        goroutine.join().unwrap();
    });
}

/// A goroutine that waits throughout is in the snapshot.
#[test]
fn loom_one_that_waits_is_recorded() {
    loom::model(|| {
        let world = World::new();
        world.parked.begin(AT);
        let coordinator = {
            let world = world.clone();
            loom::thread::spawn(move || world.snapshot())
        };
        assert_eq!(coordinator.join().unwrap(), 1);
        // A goroutine that began after the cut is not recorded.
        let number = world.snapshots.publish(PROCESS);
        world.progress.begin(&world.snapshots);
        assert_eq!(world.progress.visit(number, &world.parked, |_| unreachable!()), Visit::Born);
    });
}
