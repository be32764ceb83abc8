#!/usr/bin/env bash
# A release build without frame pointers, which is what users have who did not read the README: stacks by unwind tables,
# and races at the speed of a release build. It stands over mimalloc, or over the allocator that is named, and so shows in the
# same build what an allocator below ours may break. `all` adds what .ci/run has no time for; `build` compiles and runs nothing.
#
#   ci/no-frame-pointers.sh [mimalloc|jemalloc|build] [all]
set -euo pipefail
cd "$(dirname "$0")/.."

# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. Own folder: other flags rebuild everything.
export RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers"
inner="${1:-mimalloc}" run=()
[[ "$inner" != build ]] || inner=mimalloc run=(--no-run)
inner="rtprof-test-support/$inner"
status=0
# Also after a failure.
run_tests() {
    cargo test --profile release-tests --no-default-features --no-fail-fast ${run[@]+"${run[@]}"} "$@" || status=1
}

# What may differ from a debug build with frame pointers: stacks, races, and the statistics of sampling. The others are in the
# debug run, and here with `all`.
modules=(alloc_free_trace:: cpu::room cpu::stress cpu::truth goroutines::{asked,storm,truth,waits} heap::hostile_ hostile_
    task_traces::{leaves,order,regions,samples,script} tasks::{block,branches,executors,leaves,nested}
    traces::{asleep,samples,truth} waits::{channels_stacks,channels_stress,events,locks_stress,truth::})
[[ "${2:-}" != all ]] || modules=()
run_tests --features "pprof,$inner" --test profilers -- ${modules[@]+"${modules[@]}"}
run_tests --features "pprof,$inner" --test truth --test hostile_locks_memory --test hostile_reentry --test hostile_trace
run_tests -p rtprof-runtime -p rtprof-profiler --lib
[[ "${2:-}" == all ]] || exit "$status"
run_tests --features "pprof,interpose,$inner" --test unmodified -- c_kinds:: c_locks:: hostile:: locks:: threads:: traces::
exit "$status"
