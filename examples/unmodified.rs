//! A server for orders, written with tokio, crossbeam and std alone: none of its locks, channels, threads and sockets
//! comes from rtprof. The server has two faults.
//!
//! ```sh
//! cargo run --release --features interpose --example unmodified                     # profiles on 127.0.0.1:6060
//! cargo run --release --features interpose --example unmodified -- 127.0.0.1:7070   # elsewhere
//! ```
//!
//! The server starts a client process that sends orders all the time, so that the profiles have something to show:
//!
//! - `count_order` renders the invoice while it holds std's `Mutex` of the books: the hot lock, first in the mutex
//!   profile.
//! - `archive` passes every eighth order to a thread that is slower than the orders arrive, through crossbeam's
//!   channel, which has room for one order. The send blocks the worker instead of awaiting, as the block profile shows.
//!
//! Moreover six of tokio's eight workers have nothing to do: a trace shows them waiting.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

// The only uses of rtprof: this static, and the lines of `watch`.
#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

fn watch(address: &str) -> std::io::Result<rtprof::http::Server> {
    // Records every wait and every contended unlock, to show something at once. In production 10_000 and 10:
    // docs/contention.md.
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);
    rtprof::http::serve(address)
}

const WORKERS: usize = 8;
const CLIENTS: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["order", address] => order(address.parse()?),
        [address] => serve(address),
        [] => serve("127.0.0.1:6060"),
        _ => Err("usage: unmodified [ADDRESS:PORT]".into()),
    }
}

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let profiles = watch(address)?.local_addr();
    println!("profiles of the server are at http://{profiles}/debug/pprof/. In another shell:\n");
    println!("    go tool pprof -top http://{profiles}/debug/pprof/mutex");
    println!("    go tool pprof -http=localhost:8080 http://{profiles}/debug/pprof/block");

    let (send, receive) = crossbeam_channel::bounded(1);
    std::thread::Builder::new().name("archive".into()).spawn(move || write_archive(&receive))?;
    let shop = Arc::new(Shop { books: Mutex::default(), archive: send });

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let _ordering = Ordering::start(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(take_orders(stream, shop.clone()));
        }
    })
}

struct Shop {
    /// The invoices of each customer.
    books: Mutex<BTreeMap<u64, Vec<String>>>,
    archive: Sender<u64>,
}

/// Reads order numbers, and answers each with a line.
async fn take_orders(mut stream: tokio::net::TcpStream, shop: Arc<Shop>) -> std::io::Result<()> {
    loop {
        let order = stream.read_u64().await?;
        let total = count_order(&shop, order);
        if order % 8 == 0 {
            archive(&shop, order);
        }
        stream.write_all(format!("{total}\n").as_bytes()).await?;
    }
}

/// Returns the amount that the customer owes.
fn count_order(shop: &Shop, order: u64) -> usize {
    let mut books = shop.books.lock().unwrap();
    // The first fault: this work is done while the lock is held.
    let mut invoice = String::new();
    let mut total = 0;
    for article in 0..1000 {
        let price = (order + article) % 97;
        total += price as usize;
        let _ = writeln!(invoice, "{article:>6} {price:>4}");
    }
    let invoices = books.entry(order % 100).or_default();
    invoices.truncate(10);
    invoices.push(invoice);
    total
}

/// The second fault: blocks a worker when the archive is behind.
fn archive(shop: &Shop, order: u64) {
    shop.archive.send(order).expect("it ends with the process");
}

fn write_archive(orders: &Receiver<u64>) {
    let mut archive = Vec::new();
    for order in orders {
        // Stands for a slow disk.
        std::thread::sleep(Duration::from_millis(5));
        archive.push(order);
        archive.truncate(1000);
    }
}

/// The client process; ends with this process.
struct Ordering(Child);

impl Ordering {
    fn start(address: SocketAddr) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        Command::new(program).args(["order", &address.to_string()]).spawn().map(Self)
    }
}

impl Drop for Ordering {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends orders on each client, some hundred times a second, until the server is gone.
fn order(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| std::thread::spawn(move || keep_ordering(address, client))).collect();
    for client in clients {
        // Ends with an error when the server ends.
        let _ = client.join();
    }
    Ok(())
}

fn keep_ordering(address: SocketAddr, client: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    for order in (0..).map(|number| number * CLIENTS + client) {
        stream.write_all(&u64::to_be_bytes(order))?;
        if answers.next().transpose()?.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
