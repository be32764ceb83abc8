#!/usr/bin/env bash
# A release build with frame pointers: what its inlining and its speed can break and no other check would show, the statistics
# of sampling, and locks and traces under allocators that find every misuse. ci/example.sh checks stacks of such a build,
# ci/no-frame-pointers.sh runs most tests without frame pointers, and ci/long.sh runs all tests as a release build.
# RTPROF_STRESS_SECS is how long each stress test keeps on; half a second unless told.
set -euo pipefail
cd "$(dirname "$0")/.."

# One build with the examples: the same features.
cargo test --release --features axum --no-fail-fast --test truth --test hostile_locks_memory --test hostile_trace
