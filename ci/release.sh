#!/usr/bin/env bash
# As a release build with frame pointers, what its inlining and its speed can break and no other check would show: the
# program's functions at the top of stacks that are walked by frame pointers, the statistics of sampling, races of locks and
# traces, and the pages of the real Go tools, which must not be absent here. Other ways of a stack are in
# ci/no-frame-pointers.sh, which is a release build too; all tests as such are in ci/long.sh.
# RTPROF_STRESS_SECS is how long each stress test keeps on; 1 s unless told.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
echo "stress tests keep on for ${RTPROF_STRESS_SECS:-1} s each"
# One build with the examples: the same features.
cargo test --release --features axum --no-fail-fast --test truth --test heap --test waits --test goroutines --test traces \
    --test 'hostile_locks*' --test hostile_trace
