#!/usr/bin/env bash
# What an allocator below ours may break, over those that are named, as a release build with frame pointers. Without frame
# pointers: ci/no-frame-pointers.sh.
#
#   ci/allocators.sh mimalloc jemalloc
set -euo pipefail
cd "$(dirname "$0")/.."

for inner in "$@"; do
    echo "over $inner"
    test=(cargo test --release --no-default-features --no-fail-fast)
    inner="rtprof-test-support/$inner"
    "${test[@]}" --features "pprof,$inner" --test profilers --test truth --test hostile_locks_memory --test hostile_reentry
    "${test[@]}" --features "pprof,interpose,$inner" --test unmodified -- c_kinds:: c_locks:: hostile:: locks:: threads:: traces:: whose_frames::a_cpu
done
