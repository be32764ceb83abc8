#!/usr/bin/env bash
# As a release build with frame pointers, what its inlining and its speed can break and no other check would show: the
# statistics of sampling, and allocation, locks and traces under allocators that find every misuse. Stacks of such a build:
# ci/builds.sh. Without frame pointers it is everything: ci/no-frame-pointers.sh. All tests so: ci/long.sh.
# RTPROF_STRESS_SECS is how long each stress test keeps on; half a second unless told.
set -euo pipefail
cd "$(dirname "$0")/.."

# One build with the examples: the same features.
cargo test --release --features axum --no-fail-fast --test truth --test 'hostile_*'
