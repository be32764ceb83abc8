#![cfg(feature = "http")]
mod support;
use std::hint::black_box;
use support::{child, go};
#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

#[inline(never)]
fn keep_documents() -> Vec<Vec<u8>> {
    black_box((1..=40).map(|number| vec![1; number * 100]).collect())
}

#[test]
fn scratch() {
    rtprof::set_mem_profile_rate(1);
    let k = keep_documents();
    let server = rtprof::http::serve("127.0.0.1:0").unwrap();
    let a = server.local_addr();
    let t = rtprof::http::serve_with("127.0.0.1:0", rtprof::http::Config { token: Some("s3cret".into()), ..Default::default() }).unwrap().local_addr();
    for go in go::toolchains("x") {
        for args in [
            vec!["-top", "-nodecount=3", "heap"], vec!["-top", "goroutine"], vec!["-raw", "goroutine"], vec!["-top", "block"], vec!["-top", "mutex"], vec!["-raw", "threadcreate"],
            vec!["-top", "-nodecount=2", "-seconds=1", "heap"],  vec!["-top", "-seconds=1", "block"],
            vec!["-top", "-nodecount=3", "-symbolize=remote", "heap?symbolize=none"],
            vec!["-top", "-nodecount=3", "-symbolize=none", "heap?symbolize=none"],
            vec!["-top", "-nodecount=3", "heap?symbolize=none"],
            vec!["-top", "nope"], vec!["-top", "heap?seconds=0"], vec!["-top", "profile"], vec!["-top", "heap?debug=1", "-nodecount=2"],
            vec!["-top", "-nodecount=2", "TOKEN"], vec!["-top", "-nodecount=2", "NOTOKEN"],
        ] {
            let mut args: Vec<String> = args.into_iter().map(String::from).collect();
            for i in 0..args.len() {
                if args[i] == "TOKEN" { args[i] = format!("http://any:s3cret@{t}/debug/pprof/heap"); }
                else if args[i] == "NOTOKEN" { args[i] = format!("http://{t}/debug/pprof/heap"); }
                else if !args[i].starts_with('-') { args[i] = format!("http://{a}/debug/pprof/{}", args[i]); }
            }
            let mut c = go.pprof_command();
            c.args(&args);
            let o = child::finish(&mut c);
            println!("=== {} {args:?}\n{}", go.version, child::report(&o));
        }
    }
    drop(k);
}
