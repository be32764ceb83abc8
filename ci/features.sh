#!/usr/bin/env bash
# What is behind features that are off by default: axum's routes, and the guide that shows them; spawning on tokio's
# runtimes; spans of the crate tracing; and waits of unmodified code, beside which our own locks count each wait once.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
features=axum,tokio,tracing
cargo test -p rtprof-http --all-features --no-fail-fast
cargo test -p rtprof --doc --features "$features"
cargo test --features "$features" --no-fail-fast --test readers -- http_axum::
cargo test --features "$features" --no-fail-fast --test profilers -- spawning:: tasks_that_block spans:: workers::
cargo test -p rtprof-hooks --features tokio,tracing --doc
cargo test -p rtprof-hooks --features interpose --lib --no-fail-fast
cargo test --features interpose --no-fail-fast --test unmodified
cargo test --features interpose --no-fail-fast --test profilers -- waits::truth waits::channels:: waits::conditions waits::kinds::semaphores
