#!/usr/bin/env bash
# The oldest compiler that Cargo.toml promises, where it is installed. Where it is not, this says so; what
# remains then is clippy's `incompatible_msrv`, in ci/clippy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

version="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
[[ -n "$version" ]] || { echo "Cargo.toml states no rust-version" >&2; exit 1; }
if ! cargo "+$version" --version >/dev/null 2>&1; then
    echo "SKIPPED: Rust $version is not installed ('rustup toolchain install $version' brings it)" >&2
    exit 0
fi
CARGO_TARGET_DIR="$PWD/target/msrv" cargo "+$version" check --all-features
