//! A tokio service that is stuck: one order holds a lock while it awaits an answer that never comes, and every later
//! order waits for the lock. At the same time a report blocks a worker.
//!
//! ```sh
//! cargo run --release --example stuck_task
//! ```
//!
//! and in another shell
//!
//! ```sh
//! curl 'http://127.0.0.1:6060/debug/pprof/goroutine?debug=2'
//! ```
//!
//! The tasks named `order` are at the guilty lines: one awaits `transfer` inside `Shop::order`, all others await the
//! lock two lines above. The task `report` is not in `await` but in `syscall`, on the thread that it blocks.

use std::io;
use std::time::Duration;

use rtprof::task::Instrument;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// A request to the bank, and the channel for the answer.
type Transfer = (u64, oneshot::Sender<bool>);

struct Shop {
    orders: Mutex<Vec<u64>>,
    bank: mpsc::Sender<Transfer>,
}

impl Shop {
    async fn order(&self, amount: u64) -> io::Result<usize> {
        let mut orders = self.orders.lock().await; // waits for ever: another order holds it
        // The lock is held across this await.
        let is_paid = transfer(&self.bank, amount).await?; // waits for ever: the bank does not answer
        if is_paid {
            orders.push(amount);
        }
        Ok(orders.len())
    }
}

async fn transfer(bank: &mpsc::Sender<Transfer>, amount: u64) -> io::Result<bool> {
    let (answer, answered) = oneshot::channel();
    bank.send((amount, answer)).await.map_err(io::Error::other)?;
    answered.await.map_err(io::Error::other)
}

/// Answers the first transfers, and never the others.
async fn bank(mut transfers: mpsc::Receiver<Transfer>) {
    let mut forgotten = Vec::new();
    while let Some((amount, answer)) = transfers.recv().await {
        match amount {
            0..3 => _ = answer.send(true),
            _ => forgotten.push(answer),
        }
    }
}

/// Reads an amount from each line, and answers with the number of orders.
async fn serve(shop: &Shop, connection: TcpStream) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    let number = shop.order(line.trim().parse().map_err(io::Error::other)?).await?;
    connection.write_all(format!("{number} orders\n").as_bytes()).await
}

async fn accept(listener: TcpListener, shop: &'static Shop) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(serve(shop, connection).instrument_named("order"));
    }
}

async fn customer(shop: std::net::SocketAddr, amount: u64) -> io::Result<()> {
    let mut connection = BufReader::new(TcpStream::connect(shop).await?);
    connection.write_all(format!("{amount}\n").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_line(&mut answer).await?;
    print!("order {amount}: {answer}");
    Ok(())
}

/// This work belongs on a thread for blocking work: `task::spawn_blocking`.
fn print_report() {
    std::thread::sleep(Duration::from_secs(1 << 30)); // blocks a worker of the runtime
    println!("the report is printed");
}

#[tokio::main(worker_threads = 4)]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6060".into());
    let server = rtprof::http::serve(&*address)?;

    let (transfers, received) = mpsc::channel(8);
    tokio::spawn(bank(received).instrument_named("bank"));
    let shop = &*Box::leak(Box::new(Shop { orders: Mutex::default(), bank: transfers }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?;
    tokio::spawn(accept(listener, shop).instrument_named("listener"));
    tokio::spawn(async { print_report() }.instrument_named("report"));
    for amount in 0..3 {
        customer(port, amount).await?;
    }
    let customers: Vec<_> =
        (3..8).map(|amount| tokio::spawn(customer(port, amount).instrument_named("customer"))).collect();
    println!("stuck. Look at it: curl 'http://{}/debug/pprof/goroutine?debug=2'", server.local_addr());
    for customer in customers {
        customer.await??;
    }
    Ok(())
}
