#!/usr/bin/env bash
# Clippy with warnings denied: the whole workspace with all features, and none. `incompatible_msrv` is among its lints, so that
# a call younger than the rust-version of Cargo.toml is found without that old toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
# All but the peers of the benchmarks, which need minutes to compile, and the allocators of C.
features="$(printf '%s,' rtprof/{axum,interpose,tokio,tracing} rtprof-benches/interpose)"
cargo clippy --workspace --all-targets --features "$features" -- -D warnings
cargo clippy --lib --no-default-features -- -D warnings
