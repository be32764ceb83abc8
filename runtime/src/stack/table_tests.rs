use super::*;
use crate::primitive::AtomicU64;

#[test]
fn the_same_key_and_stack_is_the_same_entry() {
    let table: Table<u64, AtomicU64> = Table::new(100);
    assert_eq!(table.intern(1, &[1]).err(), Some(Full::Memory), "closed");
    assert!(table.open() && table.open());
    let a = table.intern(7, &[1, 2, 3]).unwrap();
    assert_eq!(a.stack(), [1, 2, 3]);
    assert!(ptr::eq(a, table.intern(7, &[1, 2, 3]).unwrap()));
    assert!(!ptr::eq(a, table.intern(8, &[1, 2, 3]).unwrap()));
    assert!(!ptr::eq(a, table.intern(7, &[1, 2]).unwrap()));
    assert_eq!((table.len(), table.iter().count()), (3, 3));
}

#[test]
fn the_limit_holds_and_known_stacks_are_still_found() {
    let table: Table<u64, AtomicU64> = Table::new(10);
    table.open();
    for i in 0..20 {
        assert_eq!(table.intern(0, &[i]).is_ok(), i < 10);
    }
    assert!(table.intern(0, &[3]).is_ok());
    assert_eq!(table.len(), 10);
}

#[test]
fn a_cleared_table_begins_anew() {
    let table: Table<u64, AtomicU64> = Table::new(10);
    for round in 0..3 {
        table.open();
        for stack in 0..10 {
            let entry = table.intern(round, &[stack]).unwrap();
            assert_eq!(entry.record.fetch_add(1, Ordering::Relaxed), 0);
        }
        assert!(table.intern(round, &[10]).is_err());
        // SAFETY: no entry is used any more.
        unsafe { table.clear() };
        assert_eq!((table.len(), table.iter().count(), table.mapped_bytes()), (0, 0, 0));
        assert_eq!(table.intern(round, &[1]).err(), Some(Full::Memory), "closed");
    }
}

#[test]
fn racing_threads_agree_on_every_entry() {
    const STACKS: usize = if cfg!(miri) { 50 } else { 5_000 };
    let table: Table<u64, AtomicU64> = Table::new(usize::MAX);
    table.open();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for i in 0..STACKS {
                    table.intern(0, &[i, i + 1]).unwrap().record.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let counts: Vec<u64> =
        table.iter().map(|e| e.record.load(Ordering::Relaxed)).filter(|&c| c > 0).collect();
    assert_eq!(counts.len(), STACKS);
    assert!(counts.iter().all(|&c| c == 4));
}
