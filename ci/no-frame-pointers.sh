#!/usr/bin/env bash
# A release build without frame pointers, which is what users have who did not read the README: every way to a stack,
# walked by unwind tables. It stands over mimalloc (tests/allocators), which proves in the same build what an allocator
# below ours may break, or over the one that is named. All tests so, as a debug build, are in ci/long.sh.
#
#   ci/no-frame-pointers.sh [mimalloc|jemalloc]
set -euo pipefail
cd "$(dirname "$0")/.."

# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. Own folder: other flags rebuild everything.
export RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers"
cargo test --manifest-path tests/allocators/Cargo.toml --features "${1:-mimalloc}" --release --no-fail-fast
cargo test --manifest-path tests/allocators/Cargo.toml --features "${1:-mimalloc},interpose" --release --no-fail-fast --test unmodified
cargo test --release --no-fail-fast -p rtprof-runtime -p rtprof-profiler --lib
