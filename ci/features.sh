#!/usr/bin/env bash
# What is behind features that are off by default: axum's routes.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test -p rtprof-http --all-features
cargo test --features axum --test http_axum
