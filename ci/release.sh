#!/usr/bin/env bash
# As a release build, what other timing and other inlining can break: truth, locks, threads, traces (the real Go tools read
# these, and must not be absent here) and the hostile tests.
# RTPROF_STRESS_SECS is how long each stress test keeps on; 1 s unless told.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
echo "stress tests keep on for ${RTPROF_STRESS_SECS:-1} s each"
# One build with the examples: the same features.
cargo test --release --features axum --no-fail-fast --test http_axum --test truth --test heap --test waits --test traces --test task_traces --test cpu \
    --test goroutines --test tasks --test hostile_dlopen --test hostile_files --test hostile_life --test 'hostile_locks*' --test hostile_reentry --test hostile_trace
cargo test --release --features interpose --no-fail-fast --test unmodified
