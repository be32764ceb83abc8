#!/usr/bin/env bash
# Clippy with warnings denied: all features, and none. `incompatible_msrv` is among its lints, so that a call younger
# than the rust-version of Cargo.toml is found without that old toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
cargo clippy --all-targets --all-features -- -D warnings
cargo clippy --lib --no-default-features -- -D warnings
