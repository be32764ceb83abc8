#!/usr/bin/env bash
# What an allocator below ours may break, over those that are named (tests/allocators), as a release build with frame
# pointers. Without frame pointers: ci/no-frame-pointers.sh.
#
#   ci/allocators.sh mimalloc jemalloc
set -euo pipefail
cd "$(dirname "$0")/.."

for inner in "$@"; do
    echo "over $inner"
    cargo test --manifest-path tests/allocators/Cargo.toml --target-dir target --features "$inner" --release \
        --no-fail-fast
    cargo test --manifest-path tests/allocators/Cargo.toml --target-dir target --features "$inner,interpose" --release \
        --no-fail-fast --test unmodified
done
