//! A program that rtprof is added to: a service, and threads that talk. The same requests to the program with rtprof and
//! to the one without.

use std::hint::black_box;
use std::path::Path;

use crate::async_work::Spawn;
use crate::chatty::Chat;
use crate::file_server::FileServer;
use crate::processor::used_by_all;
use crate::serve::serve;

/// A block that the C library maps on its own. After it has been freed the library keeps up to twice as much free memory.
const LARGE: usize = 16 << 20;

/// Answers requests: `files MODE FOLDER` (starts a server of the folder; answers its port), `talk MODE` (nothing is
/// served), one of these first; `used` (answers the milliseconds of processor time so far); `chat NAME COUNT` (answers
/// nanoseconds of processor time for one message). `set_up` is called with the mode, and returns how the server spawns
/// its tasks.
///
/// # Panics
/// When a request is unknown, or comes before the first one.
pub fn run<S: Spawn>(set_up: impl Fn(&str) -> S) {
    // Until a program frees its first large block, the C library gives the buffers of every file back to the kernel. rtprof
    // frees such blocks when it starts. So without this line the program without rtprof alone would pay for page faults,
    // which took 9 % of the server's processor time.
    drop(black_box(vec![1_u8; LARGE]));
    let mut server = None;
    serve(|request| match request.word() {
        "files" => {
            let spawn = set_up(request.word());
            let server = server.insert(FileServer::start(Path::new(request.word()), spawn));
            vec![f64::from(server.port())]
        }
        "talk" => {
            set_up(request.word());
            vec![]
        }
        "used" => vec![used_by_all().as_secs_f64() * 1e3],
        "chat" => vec![Chat::named(request.word()).nanos(request.number())],
        other => panic!("unknown request {other}"),
    });
}
