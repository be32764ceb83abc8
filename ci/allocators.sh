#!/usr/bin/env bash
# The hostile tests, truth and layouts over jemalloc and over mimalloc (tests/allocators).
set -euo pipefail
cd "$(dirname "$0")/.."

for inner in jemalloc mimalloc; do
    echo "over $inner"
    cargo test --manifest-path tests/allocators/Cargo.toml --target-dir target/allocators --features "$inner"
done
