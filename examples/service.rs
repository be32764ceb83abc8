//! A small service that searches the Rust documentation on this machine, with `/debug/pprof/` on its own port, and with
//! three faults.
//!
//! ```sh
//! cargo run --release --features axum --example service                     # on 127.0.0.1:6060
//! cargo run --release --features axum --example service -- 127.0.0.1:7070   # elsewhere
//! ```
//!
//! The service starts a client process that sends requests all the time, so that the profiles have something to show:
//!
//! - `remember_answer`, the leak, keeps every answer in a history that is never read. It comes first in the heap
//!   profile, and grows in `heap?seconds=5`.
//! - `count_search` renders the answer while it holds the lock of the statistics: the hot lock, first in the mutex
//!   profile.
//! - `Thesaurus::ask` holds an async lock while it awaits a slow service over the only connection to it: requests for
//!   `/similar` wait for each other. Each request is a separate task, which a trace shows by its name. The trace shows
//!   which tasks wait for that lock, which for the network, and which task wakes which.
//!
//! ```sh
//! curl -fso service.out 'http://127.0.0.1:6060/debug/pprof/trace?seconds=5'
//! go tool trace service.out
//! ```

mod corpus;

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use rtprof::sync::Mutex;
use rtprof::task::Instrument;
use rtprof::trace;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use corpus::{MIB, plain_text, words};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Clients of the client process, for each route.
const CLIENTS: usize = 4;
const ROUTES: [&str; 2] = ["search", "similar"];

/// How long the thesaurus takes to answer.
const THINKING: Duration = Duration::from_millis(4);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ask", address] => ask(address.parse()?),
        [address] => serve(address),
        [] => serve("127.0.0.1:6060"),
        _ => Err("usage: service [ADDRESS:PORT]".into()),
    }
}

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    // Records every wait and every contended unlock, to show something at once. In production 10_000 and 10:
    // docs/contention.md.
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);

    let library = Library::read();
    println!("{} pages, {} words", library.pages.len(), library.places.len());
    let thesaurus = start_thesaurus(library.places.keys().cloned().collect())?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(CLIENTS).enable_all().build()?;
    runtime.block_on(async {
        let service = Arc::new(Service { library, thesaurus: Thesaurus::connect(thesaurus).await? });
        let app = Router::new()
            .route("/search", get(search))
            .route("/similar", get(similar))
            .with_state(service)
            .route_layer(middleware::from_fn(follow))
            // The profiles need only this line.
            .merge(rtprof::http::router());
        let listener = tokio::net::TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let _asking = Asking::start(address)?;
        println!(
            "http://{address}/search?word=vector, and http://{address}/debug/pprof/. In another shell:\n"
        );
        println!("    go tool pprof -top http://{address}/debug/pprof/heap");
        println!("    go tool pprof -http=localhost:8080 http://{address}/debug/pprof/mutex");
        println!("    curl -fso service.out 'http://{address}/debug/pprof/trace?seconds=5'");
        axum::serve(listener, app).await?;
        Ok(())
    })
}

/// Makes each request a separate task: a goroutine in traces and profiles, and a user task that has its regions.
async fn follow(request: Request, next: Next) -> Response {
    let name = format!("{} {}", request.method(), request.uri().path());
    let answered = async {
        let _task = trace::Task::new(&name);
        next.run(request).await
    };
    answered.instrument_named(&name).await
}

/// The state that all requests share.
struct Service {
    library: Library,
    thesaurus: Thesaurus,
}

/// The pages, and the pages of each word.
struct Library {
    pages: Vec<Page>,
    places: BTreeMap<String, Vec<u32>>,
}

struct Page {
    name: String,
    text: String,
}

impl Library {
    fn read() -> Self {
        let root = corpus::source();
        let mut library = Self { pages: Vec::new(), places: BTreeMap::new() };
        let mut bytes = 0;
        for path in corpus::pages(&root) {
            let Ok(raw) = fs::read(&path) else { continue };
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            bytes += raw.len();
            library.add(name, plain_text(&String::from_utf8_lossy(&raw)));
            if bytes > 8 * MIB {
                break;
            }
        }
        library
    }

    fn add(&mut self, name: String, text: String) {
        let page = self.pages.len() as u32;
        for word in words(&text) {
            let places = self.places.entry(word.to_lowercase()).or_default();
            if places.last() != Some(&page) {
                places.push(page);
            }
        }
        self.pages.push(Page { name, text });
    }

    /// Returns the pages that contain the word, each with the first line that does.
    fn render(&self, word: &str) -> String {
        let mut answer = format!("{word}:\n");
        for &page in self.places.get(word).into_iter().flatten().take(30) {
            let page = &self.pages[page as usize];
            let line = page.text.lines().find(|line| line.to_lowercase().contains(word)).unwrap_or_default();
            let line: String = line.trim().chars().take(200).collect();
            let _ = writeln!(answer, "{}: {line}", page.name);
        }
        answer
    }
}

type Words = Query<HashMap<String, String>>;

async fn search(State(service): State<Arc<Service>>, Query(query): Words) -> String {
    let word = query.get("word").map(|word| word.to_lowercase()).unwrap_or_default();
    let answer = count_search(&service.library, &word);
    remember_answer(&answer);
    answer
}

async fn similar(
    State(service): State<Arc<Service>>,
    Query(query): Words,
) -> Result<String, (StatusCode, String)> {
    let word = query.get("word").map(|word| word.to_lowercase()).unwrap_or_default();
    let words = {
        let _region = trace::start_region("thesaurus"); // held across the await
        service.thesaurus.ask(&word).await.map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))?
    };
    trace::log("words", &words);
    Ok(trace::with_region("render", || words.split(' ').map(|word| service.library.render(word)).collect()))
}

/// The other service, which this service calls: slow, and over one connection.
struct Thesaurus {
    connection: tokio::sync::Mutex<tokio::io::BufStream<tokio::net::TcpStream>>,
}

impl Thesaurus {
    async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        Ok(Self { connection: tokio::sync::Mutex::new(tokio::io::BufStream::new(stream)) })
    }

    /// Returns words like `word`, separated by spaces.
    async fn ask(&self, word: &str) -> io::Result<String> {
        // Held until the answer arrives, so all other requests wait here. A pool of connections would fix this.
        let mut connection = self.connection.lock().await;
        connection.write_all(format!("{word}\n").as_bytes()).await?;
        connection.flush().await?;
        let mut answer = String::new();
        connection.read_line(&mut answer).await?;
        Ok(answer.trim_end().to_owned())
    }
}

/// Starts the other service on a thread. It reads a word from each line, and answers with a line of words that begin
/// alike.
fn start_thesaurus(all: Vec<String>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        for line in BufReader::new(stream.try_clone()?).lines() {
            let word = line?;
            std::thread::sleep(THINKING);
            let alike = all.iter().filter(|other| other.starts_with(&word)).take(3);
            let alike: Vec<&str> = alike.map(String::as_str).collect();
            stream.write_all(format!("{}\n", alike.join(" ")).as_bytes())?;
        }
        Ok(())
    });
    Ok(address)
}

/// The number of searches for each word.
static SEARCHES: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

#[inline(never)]
fn count_search(library: &Library, word: &str) -> String {
    let mut searches = SEARCHES.lock();
    *searches.entry(word.to_owned()).or_default() += 1;
    // Rendering needs no lock.
    library.render(word)
}

static HISTORY: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[inline(never)]
fn remember_answer(answer: &str) {
    HISTORY.lock().push(answer.to_owned());
}

/// The client process; ends with this process.
struct Asking(Child);

impl Asking {
    fn start(address: SocketAddr) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        Command::new(program).args(["ask", &address.to_string()]).spawn().map(Self)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends requests on each client, some hundred times a second each, until the service is gone.
fn ask(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let clients: Vec<_> = (0..CLIENTS)
        .flat_map(|client| {
            ROUTES.map(|route| std::thread::spawn(move || keep_asking(address, route, client)))
        })
        .collect();
    for client in clients {
        // Ends with an error when the service ends.
        let _ = client.join();
    }
    Ok(())
}

fn keep_asking(address: SocketAddr, route: &str, client: usize) -> std::io::Result<()> {
    const WORDS: [&str; 8] = ["the", "function", "value", "type", "string", "error", "this", "that"];
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    for word in WORDS.into_iter().cycle().skip(client) {
        // Written in one piece, because the system would delay a second piece.
        let request = format!("GET /{route}?word={word} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if answers.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or(0);
            }
        }
        answers.read_exact(&mut vec![0; length])?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
