//! Benchmarks of rtprof and its peers.
//!
//! `cargo run --release -p rtprof-benches --bin bench` prints one table. A global allocator is chosen when a program is
//! linked, so every contender is a separate binary (`subjects/`), and so are the parts of rtprof that are timed alone
//! (`parts/NAME/main.rs`). Each binary waits for requests on its standard input, and the driver (`src/bin/bench/`, with
//! `parts/NAME/driver.rs`) asks them in turn for a few milliseconds of work at a time. So a disturbance of the machine
//! affects all contenders of a round alike, and ratios are taken within a round.
//!
//! This library holds the code that the binaries share. It must not name `rtprof`, because some subjects have to be
//! linked without it.

pub mod adopter;
pub mod async_work;
pub mod busy;
pub mod calls;
pub mod chatty;
pub mod churn;
pub mod coroutine;
pub mod descent;
pub mod file_client;
pub mod file_server;
pub mod live_heap;
pub mod processor;
pub mod serve;
pub mod sizes;
pub mod stall;
pub mod statistics;
pub mod storm;
pub mod subject;
pub mod team;
pub mod work;
pub mod written;
pub mod yardstick;
