//! The pages of `go tool pprof -http`: graph, flame graph, source. They use more of a profile than the reports do, and
//! most users read them.

use std::hint::black_box;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use test_support::child;
use test_support::folder;
use test_support::go::{self, Go};
use test_support::web;

#[inline(never)]
fn held_by_the_page() -> Vec<u8> {
    black_box(vec![7; 300_000])
}

/// A pprof server that ends with the test, in any case.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // `go tool` may be the parent of the server: both are in the group that the command founded.
            // SAFETY: a plain system call; the group's founder has not been waited for, so its id is not reused.
            unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
            self.0.wait().ok();
        }
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<web::Answer> {
    web::exchange(address, web::request(address, "GET", path, &[], ""))
}

/// Starts a server on a free port. pprof needs a port number, so another process may take the port first; then this
/// tries again.
fn serve(go: &Go, path: &Path) -> (Server, SocketAddr) {
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let mut command = go.pprof_command();
        command.arg("-no_browser").arg(format!("-http={address}")).arg(path);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Server(command.spawn().expect("Go runs"));
        let mut has_ended = false;
        test_support::until("the server answers", || {
            has_ended = server.0.try_wait().expect("a child can be asked").is_some();
            has_ended || get(address, "/ui/flamegraph").is_ok()
        });
        if !has_ended {
            return (server, address);
        }
    }
    panic!("Go {}: no server", go.version);
}

#[test]
fn pages_are_served() {
    child::isolated("pages_are_served", || {
        rtprof::set_mem_profile_rate(1);
        let held = held_by_the_page();
        rtprof::set_mem_profile_rate(0);
        let path = folder::tmp().join("interop-web.pb.gz");
        let mut bytes = Vec::new();
        rtprof::pprof::write_heap_profile(&mut bytes).expect("a vector takes everything");
        std::fs::write(&path, bytes).expect("the build's own folder can be written");

        for go in go::toolchains("pages_are_served") {
            let (_server, address) = serve(&go, &path);
            for page in ["/ui/flamegraph", "/ui/top", "/ui/peek?f=held_by_the_page"] {
                let answer = get(address, page).expect("the server answers");
                assert_eq!(answer.status, 200, "Go {}: {page}: {}", go.version, answer.text());
                assert!(
                    answer.text().contains("held_by_the_page"),
                    "Go {}: {page} has our function",
                    go.version
                );
            }
        }
        drop(held);
    });
}
