//! Tells the crate whether rtprof records on this platform, as the build script of `rtprof-runtime` has determined.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_RTPROF_RUNTIME_SUPPORTED");
    if std::env::var_os("DEP_RTPROF_RUNTIME_SUPPORTED").is_some() {
        println!("cargo::rustc-cfg=rtprof_supported");
    }
}
