//! The decoder of profile.proto.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rtprof_pprof_out::fuzzing::profile(bytes));
