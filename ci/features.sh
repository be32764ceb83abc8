#!/usr/bin/env bash
# What is behind features that are off by default: axum's routes, and the guide that shows them; spawning on tokio's
# runtimes; spans of the crate tracing; and waits of unmodified code. All of them in one build, as in a service. The profilers
# with these features are in ci/no-frame-pointers.sh; `apart`, as in ci/long.sh, has them here too, with `interpose` and
# without, and shows that each feature compiles alone.
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1
ci/go.sh
status=0
# One command for the three crates, because of each other's features: what one of them needs is compiled once.
features=rtprof/axum,rtprof/tokio,rtprof/tracing
modules=()
check() {
    local test=(cargo test -p rtprof -p rtprof-http -p rtprof-hooks --features "$1" --no-fail-fast) profilers=()
    shift
    ((${#modules[@]} == 0)) || profilers=(--test profilers)
    # Side by side, before the first of them runs.
    "${test[@]}" --no-run --lib --test readers ${profilers[@]+"${profilers[@]}"} "$@"
    # One after the other, also after a failure.
    "${test[@]}" --lib || status=1
    "${test[@]}" --doc || status=1
    "${test[@]}" --test readers -- http_axum:: || status=1
    ((${#modules[@]} == 0)) || "${test[@]}" --test profilers -- "${modules[@]}" || status=1
    (($# == 0)) || "${test[@]}" "$@" || status=1
}
if [[ "${1:-}" == apart ]]; then
    modules=(spawning:: tasks_that_block spans:: workers::)
    check "$features"
    for feature in pprof http axum tokio tracing interpose; do
        cargo check --no-default-features --features "$feature" || status=1
    done
    # Beside which our own locks count each wait once.
    modules+=(hostile_{cancel,cancel_steps,life,storm,timers}:: waits::truth waits::channels:: waits::conditions waits::kinds::semaphores)
fi
check "$features,rtprof/interpose" --test unmodified
exit "$status"
