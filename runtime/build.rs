//! Tells the crate two facts that no `cfg` of the compiler reveals: whether rtprof records on this platform, and
//! whether the flags ask for frame pointers.
use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    let os = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if os == "linux" && (arch == "x86_64" || arch == "aarch64") {
        println!("cargo::rustc-cfg=rtprof_supported");
        // For the build scripts of the crates above.
        println!("cargo::metadata=SUPPORTED=yes");
    }

    // `rustc --print cfg` is the same with and without the flag, so the flags themselves are read. This is a hint:
    // `cargo rustc -- -Cforce-frame-pointers` and compiler wrappers are not visible here, so a self-test at start
    // decides.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let mut hint = "unknown";
    let mut words = flags.split('\x1f').peekable();
    while let Some(word) = words.next() {
        let option = match word {
            "-C" | "--codegen" => words.next().unwrap_or_default(),
            _ => word.strip_prefix("-C").or(word.strip_prefix("--codegen=")).unwrap_or_default(),
        };
        if let Some(value) = option.strip_prefix("force-frame-pointers") {
            hint = match value.trim_start_matches('=') {
                "" | "yes" | "y" | "on" | "true" | "always" => "yes",
                _ => "no",
            };
        }
    }
    println!("cargo::rustc-env=RTPROF_FRAME_POINTERS_HINT={hint}");
}
