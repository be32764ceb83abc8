#!/usr/bin/env bash
# What to run before every commit: at most 3 minutes where the last build is warm. The rest is in .ci/run.
set -euo pipefail
cd "$(dirname "$0")/.."

ci/fmt.sh
ci/clippy.sh
export RTPROF_STRESS_SECS="${RTPROF_STRESS_SECS:-0.3}"
cargo test --no-fail-fast --lib
cargo test --no-fail-fast --test truth --test hostile_reentry
cargo test --no-fail-fast --test profilers -- goroutines:: heap:: tasks:: traces:: waits::
cargo test --no-fail-fast --test readers -- http_
