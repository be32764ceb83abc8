//! Decides whether the functions of the C library are replaced (`interpose`): where the feature is on, on a platform that
//! rtprof records on, and not where a sanitizer replaces the same functions for its own ends.
use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(rtprof_interposed)");

    let of = |name: &str| env::var(name).unwrap_or_default();
    let is_wanted = env::var_os("CARGO_FEATURE_INTERPOSE").is_some();
    let is_supported = of("CARGO_CFG_TARGET_OS") == "linux"
        && ["x86_64", "aarch64"].contains(&of("CARGO_CFG_TARGET_ARCH").as_str())
        && of("CARGO_CFG_TARGET_POINTER_WIDTH") == "64"
        && ["gnu", "musl"].contains(&of("CARGO_CFG_TARGET_ENV").as_str());
    // The compiler tells of a sanitizer on nightly alone, and the flags only where they are not in a wrapper.
    let is_sanitized =
        !of("CARGO_CFG_SANITIZE").is_empty() || of("CARGO_ENCODED_RUSTFLAGS").contains("sanitizer=");
    // Models explore the data structures, and replace no functions.
    let is_model = env::var_os("CARGO_CFG_LOOM").is_some();
    if is_wanted && is_supported && !is_sanitized && !is_model {
        println!("cargo::rustc-cfg=rtprof_interposed");
    }
}
