#!/usr/bin/env bash
# A release build without frame pointers, which is what users have who did not read the README: every way to a stack,
# walked by unwind tables. All tests so, as a debug build, are in ci/long.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. Own folder: other flags rebuild everything.
export RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers"
cargo test --release --no-fail-fast --test truth --test hostile_reentry --test hostile_life --test hostile_dlopen \
    --test hostile_locks_memory
# The files of these three that are about stacks.
cargo test --release --no-fail-fast --test heap --test waits --test traces -- \
    events:: channels_stacks:: threads:: hostile_stacks:: hostile_fork::
cargo test --release --no-fail-fast -p rtprof-profiler --lib
