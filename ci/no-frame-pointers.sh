#!/usr/bin/env bash
# A release build without frame pointers, which is what users have who did not read the README: stacks by unwind tables,
# and races at the speed of a release build. It stands over mimalloc, or over the allocator that is named, and so shows in the
# same build what an allocator below ours may break. `all` adds what .ci/run has no time for.
#
#   ci/no-frame-pointers.sh [mimalloc|jemalloc] [all]
set -euo pipefail
cd "$(dirname "$0")/.."

# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. Own folder: other flags rebuild everything.
export RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers"
test=(cargo test --profile release-tests --no-default-features --no-fail-fast)
inner="rtprof-test-support/${1:-mimalloc}"

# These check no stack of their own, or take long. (In `task_traces::script` a select is shown as a receive by such a build:
# a defect that is not mended yet.)
left_out=(cpu::misuse cpu::refused goroutines::forks profile_api:: task_traces::script task_traces::storms traces::flight
    traces::interop traces::misuse traces::perfetto traces::sessions traces::window_files traces::writers)
[[ "${2:-}" != all ]] || left_out=()
"${test[@]}" --features "pprof,$inner" --test profilers -- ${left_out[@]+"${left_out[@]/#/--skip=}"}
"${test[@]}" --features "pprof,$inner" --test truth --test hostile_locks_memory --test hostile_reentry
"${test[@]}" -p rtprof-runtime -p rtprof-profiler --lib
[[ "${2:-}" == all ]] || exit 0
"${test[@]}" --features "pprof,interpose,$inner" --test unmodified -- c_kinds:: c_locks:: hostile:: locks:: threads:: traces::
