//! Allocations of every kind that std makes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::sync::mpsc;

#[repr(align(256))]
struct Aligned(#[expect(dead_code, reason = "only its place matters")] u8);

/// Allocates in every way: growing, shrinking, zeroed, over-aligned, empty, small and large; on this thread, on new
/// ones, and freed on another thread than allocated.
pub fn every_kind() {
    let mut words = BTreeMap::new();
    for number in 0..500_u32 {
        words.insert(number.to_string(), vec![number; 3]);
    }
    let counted: HashMap<_, _> = words.iter().map(|(word, list)| (word.clone(), list.len())).collect();
    let mut grown = Vec::new();
    (0..100_000_u32).for_each(|number| grown.push(number));
    grown.shrink_to(50_000);
    grown.truncate(3);
    grown.shrink_to_fit();
    let mut queue: VecDeque<String> = words.into_keys().collect();
    queue.rotate_left(100);
    black_box((vec![0_u8; 100_000], vec![0_u64; 12], vec![0_u8; 9 << 20], counted, grown, queue));
    black_box((0..50).map(|number| Box::new(Aligned(number))).collect::<Vec<_>>());
    black_box(Vec::<()>::with_capacity(usize::MAX));

    let (send, receive) = mpsc::channel();
    let freeing = std::thread::spawn(move || receive.into_iter().for_each(drop::<Vec<String>>));
    for _ in 0..8 {
        let send = send.clone();
        let body = move || send.send(vec![String::from("from a thread"); 40]);
        std::thread::spawn(body).join().expect("it ends").expect("the other thread listens");
    }
    drop(send);
    freeing.join().expect("it ends");
}
