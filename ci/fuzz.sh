#!/usr/bin/env bash
# Runs each fuzz target (fuzz/) for RTPROF_FUZZ_SECS seconds, a minute by default, from its seeds. Needs a nightly compiler and
# a C++ compiler; brings cargo-fuzz. A crash is kept in fuzz/artifacts: add it to fuzz/seeds when it is mended.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED: a nightly compiler is not installed ('rustup toolchain install nightly' brings it)" >&2
    exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install cargo-fuzz --locked --root "$PWD/target/tools"
    export PATH="$PWD/target/tools/bin:$PATH"
fi

cargo +nightly fuzz build
for target in $(cargo +nightly fuzz list); do
    found="$PWD/target/fuzz/$target"
    mkdir -p "$found"
    cargo +nightly fuzz run "$target" "$found" "fuzz/seeds/$target" -- -max_total_time="${RTPROF_FUZZ_SECS:-60}" -verbosity=0 -print_final_stats=1
done
