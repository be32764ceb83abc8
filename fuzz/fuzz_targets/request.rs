//! Paths, queries and headers of requests. The first line is the target, each further line a header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rtprof_http::fuzzing::request(bytes));
