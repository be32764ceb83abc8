//! The addresses of a request to `/debug/pprof/symbol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rtprof_http::fuzzing::symbol_words(bytes));
