//! The reader of trace files that the tests rely on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(parsed) = rtprof_trace_check::Parsed::read(bytes) {
        let _ = parsed.events().count();
    }
});
