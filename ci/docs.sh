#!/usr/bin/env bash
# The documentation builds without a warning, broken links among them.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTDOCFLAGS="-D warnings"
cargo doc --no-deps
cargo doc --no-deps --all-features
