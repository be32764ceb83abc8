#!/usr/bin/env bash
# The test `hostile_storm` in each kind of build, for a quarter of an hour each, or for the seconds that are given: no crash, no
# hang, no lost sum. `.ci/run` has it for some seconds in the debug and release builds. Nothing else is to run beside it: under
# a sanitizer an export takes a part of the minute that the test waits for things.
#
#   ci/storm.sh [seconds]
set -euo pipefail
cd "$(dirname "$0")/.."

export RTPROF_STRESS_SECS="${1:-900}"
status=0
# Also after a failure.
storm() { "$@" hostile_storm || status=1; }

storm cargo test --test profilers --
storm cargo test --test profilers --features interpose,tokio,tracing --
storm cargo test --test profilers --release --
(
    source ci/light-release.sh
    without_frame_pointers
    storm cargo test --test profilers --release --features interpose,tokio,tracing,rtprof-test-support/mimalloc --
    exit "$status"
) || status=1
if cargo +nightly --version >/dev/null 2>&1; then
    sanitized() {
        RUSTFLAGS='-Zsanitizer=address' CARGO_TARGET_DIR="$PWD/target/sanitizers" ASAN_OPTIONS=detect_leaks=0 \
            cargo +nightly test --target "$(rustc -vV | sed -n 's/^host: //p')" "$@"
    }
    storm sanitized --test profilers --
else
    echo "SKIPPED: a nightly compiler is not installed ('rustup toolchain install nightly' brings it)" >&2
fi
exit "$status"
