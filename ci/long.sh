#!/usr/bin/env bash
# What .ci/run leaves out because of its time. Run it by hand before a release, and after a change of stacks, locks or
# allocation. It goes on after a failure; the last lines say what failed.
set -uo pipefail
cd "$(dirname "$0")/.."

export RTPROF_REQUIRE_GO=1 RTPROF_REQUIRE_BROWSER=1 RTPROF_REQUIRE_DWZ=1
ci/go.sh && ci/browser.sh || exit 1

failed=()
step() {
    local what="$1" start=$SECONDS
    shift
    echo "=== $what"
    "$@" </dev/null || failed+=("$what")
    echo "=== $what: $((SECONDS - start)) s"
}

all_without_frame_pointers() {
    RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers" cargo test --no-fail-fast
}
# From 30 on, tests make all rounds.
under_stress() { RTPROF_STRESS_SECS="${RTPROF_STRESS_SECS:-30}" cargo test --release --no-fail-fast "$@"; }
damaged_debug_information() {
    # With the parsers' own assertions, which the dev profile leaves out.
    RTPROF_FUZZ_SECS=60 cargo test -p rtprof-symbols --lib damaged_files_are_harmless \
        --config=profile.dev.package.{addr2line,gimli,object}.debug-assertions=true
}
# A test that leans on the machine's mood shows it here: the debug binaries beside busy loops.
beside_busy_loops() {
    local loops=() status=0
    for _ in 1 2 3 4; do (while :; do :; done) & loops+=($!); done
    cargo test --no-fail-fast || status=$?
    kill "${loops[@]}"
    return "$status"
}

step 'all tests without frame pointers' all_without_frame_pointers
step 'a release build under stress' under_stress --features axum --tests
step 'unmodified code under stress' under_stress --features interpose --test unmodified
step 'a storm of everything at once' ci/storm.sh
step 'models with more preemptions' ci/loom.sh all
step 'features without interposed functions' ci/features.sh apart
step 'over jemalloc and mimalloc' ci/allocators.sh jemalloc mimalloc
step 'over mimalloc, without frame pointers' ci/no-frame-pointers.sh mimalloc all
step 'over jemalloc, without frame pointers' ci/no-frame-pointers.sh jemalloc all
step 'every kind of build' ci/builds.sh all
step 'sanitizers' ci/sanitizers.sh
step 'damaged debug information' damaged_debug_information
step 'fuzz targets' ci/fuzz.sh
step 'benchmarks' ci/benches.sh
step 'nothing became much slower' ci/regressions.sh
step 'beside four busy loops' beside_busy_loops
step 'crates as they are published' ci/package.sh verify
step 'changes of the public interface' ci/semver.sh
step 'the oldest compiler' ci/msrv.sh
step 'the least versions of dependencies' ci/least-versions.py

echo "=== long"
printf 'failed: %s\n' ${failed[@]+"${failed[@]}"}
((${#failed[@]} == 0))
