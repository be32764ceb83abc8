//! A program that hangs: two threads take two locks in opposite orders. Of two further threads one waits for a line of
//! input and the other one computes.
//!
//! ```sh
//! cargo run --release --example deadlock
//! ```
//!
//! and in another shell
//!
//! ```sh
//! curl 'http://127.0.0.1:6060/debug/pprof/goroutine?debug=2'
//! ```
//!
//! The two threads that say `sync.Mutex.Lock` are at the guilty lines. The others report their stacks too, in answer to
//! a signal.

use std::hint::black_box;
use std::io;
use std::sync::Arc;

use rtprof::sync::{Barrier, Mutex};
use rtprof::thread;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

#[derive(Default)]
struct Bank {
    accounts: Mutex<Vec<i64>>,
    journal: Mutex<Vec<String>>,
}

impl Bank {
    /// Takes `accounts`, then `journal`.
    fn transfer(&self, both_are_here: &Barrier) {
        let mut accounts = self.accounts.lock();
        both_are_here.wait();
        let mut journal = self.journal.lock(); // waits for ever: `audit` holds it
        accounts.push(1);
        journal.push("transfer".to_owned());
    }

    /// Takes `journal`, then `accounts`.
    fn audit(&self, both_are_here: &Barrier) {
        let journal = self.journal.lock();
        both_are_here.wait();
        let accounts = self.accounts.lock(); // waits for ever: `transfer` holds it
        println!("{} entries, {} accounts", journal.len(), accounts.len());
    }
}

/// Computes in the C library.
fn sort_for_ever() {
    let mut numbers: Vec<u64> = (0..10_000).collect();
    let mut copy = numbers.clone();
    loop {
        numbers.reverse();
        copy.copy_from_slice(black_box(&numbers));
        black_box(&copy);
    }
}

/// Waits for input that does not come.
fn read_a_line() {
    let mut line = String::new();
    let _ = io::stdin().read_line(&mut line);
    println!("read {line:?}");
    thread::park();
}

fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6060".into());
    let server = rtprof::http::serve(&*address).expect("the address is free");
    println!("look at it: curl 'http://{}/debug/pprof/goroutine?debug=2'", server.local_addr());

    let bank = Arc::new(Bank::default());
    let both_are_here = Arc::new(Barrier::new(2));
    let start = |name: &str, body: fn(&Bank, &Barrier)| {
        let (bank, both_are_here) = (bank.clone(), both_are_here.clone());
        thread::Builder::new().name(name.into()).spawn(move || body(&bank, &both_are_here))
    };
    let transfer = start("transfer", Bank::transfer).expect("a thread");
    let audit = start("audit", Bank::audit).expect("a thread");
    thread::spawn(sort_for_ever);
    thread::spawn(read_a_line);

    for thread in [transfer, audit] {
        thread.join().expect("it does not panic");
    }
}
