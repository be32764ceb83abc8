#!/usr/bin/env bash
# A release build without frame pointers, which is what users have who did not read the README: stacks by unwind tables,
# and races at the speed of a release build. It stands over mimalloc, or over the allocator that is named, and so shows in the
# same build what an allocator below ours may break. `all` adds what .ci/run has no time for; `build` compiles and runs nothing.
#
# Waits of unmodified code are recorded too, as README says for services; the debug build, and `all`, are without that.
#
#   ci/no-frame-pointers.sh [mimalloc|jemalloc|build] [all]
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/light-release.sh
without_frame_pointers
inner="${1:-mimalloc}" run=()
[[ "$inner" != build ]] || inner=mimalloc run=(--no-run)
inner="rtprof-test-support/$inner"
interposed="interpose,tokio,tracing,$inner"
status=0
# Also after a failure.
run_tests() {
    cargo test --release --no-fail-fast ${run[@]+"${run[@]}"} "$@" || status=1
}

# What may differ from a debug build with frame pointers: stacks, races, and the statistics of sampling. And what may differ
# where waits of unmodified code are recorded, or needs a feature that is off by default. The others are in the debug run,
# and here with `all`.
modules=(alloc_free_trace:: cpu::room cpu::stress cpu::truth goroutines::{asked,storm,truth,waits} heap::hostile_ hostile_
    task_traces::{leaves,order,regions,samples,script} tasks::{block,branches,executors,leaves,nested}
    traces::{asleep,samples,truth} waits::{channels_stacks,channels_stress,events,locks_stress,truth::}
    spans:: spawning:: tasks_that_block workers:: waits::{channels::,conditions,kinds::semaphores})
# They count all waits of the program, or all its threads, of which there are more with the functions that stand in for the C
# library's.
uncounted=(goroutines::asked::a_thread_that_waits_in_the_kernel task_traces::regions::a_guard_is_held_across_an_await
    task_traces::samples::a_poll_that_began_before_the_trace traces::samples::a_thread_that_no_hook_has_seen_has_a_lane
    traces::truth::other_profiles_agree waits::events::a_panic_unlocks waits::events::uncontended_use_is_no_event)
run_tests --features "$interposed" --test profilers -- "${modules[@]}" "${uncounted[@]/#/--skip=}"
others=(--test truth --test hostile_locks_memory --test hostile_reentry --test hostile_trace)
run_tests --features "$interposed" "${others[@]}"
run_tests -p rtprof-runtime -p rtprof-profiler --lib
[[ "${2:-}" == all ]] || exit "$status"
run_tests --features "$inner" --test profilers "${others[@]}"
run_tests --features "$interposed" --test unmodified -- c_kinds:: c_locks:: hostile:: locks:: threads:: traces::
exit "$status"
