#!/usr/bin/env bash
# What is behind features that are off by default: axum's routes, and the guide that shows them. Their end-to-end test is in
# ci/release.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test -p rtprof-http --all-features --no-fail-fast
cargo test -p rtprof --doc --features axum
