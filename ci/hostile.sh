#!/usr/bin/env bash
# Truth, layouts, locks, traces and the hostile tests once more, as a release build: other timing, other inlining (of
# unlocks into their callers above all), a million stacks, and ten million events.
# RTPROF_STRESS_SECS is how long each stress test keeps on; 3 s unless told.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "stress tests keep on for ${RTPROF_STRESS_SECS:-3} s each"
cargo test --release --test truth --test layouts --test collector --test 'hostile_*' \
    --test 'contention_*' --test 'locks_*' --test 'channels*' --test threads --test 'trace_*'
