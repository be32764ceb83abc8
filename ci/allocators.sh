#!/usr/bin/env bash
# Truth, and the hostile tests of what an allocator below ours may break, over other allocators than the system's
# (tests/allocators), as a release build: over mimalloc, or over those that are named.
#
#   ci/allocators.sh [mimalloc] [jemalloc]
set -euo pipefail
cd "$(dirname "$0")/.."

for inner in "${@:-mimalloc}"; do
    echo "over $inner"
    cargo test --manifest-path tests/allocators/Cargo.toml --target-dir target --features "$inner" --release \
        --no-fail-fast
done
