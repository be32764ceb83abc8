#!/usr/bin/env bash
# The models of the lock-free structures. Each crate's beside the others', and one after another within a process: loom
# maps and unmaps stacks all the time, and threads that do so in one process wait for each other.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(-p rtprof-runtime -p rtprof-profiler -p rtprof-tracer -p rtprof-allocator -p rtprof-hooks)
output="$(mktemp -d)"
trap 'rm -rf "$output"' EXIT
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$PWD/target/loom"
cargo test "${packages[@]}" --release --lib --no-run 2>&1 | tee "$output/built"

mapfile -t binaries < <(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$output/built")
((${#binaries[@]} * 2 == ${#packages[@]})) || { echo "not one binary for each of ${packages[*]}" >&2; exit 1; }
running=()
for binary in "${binaries[@]}"; do
    "$binary" loom_ --test-threads=1 >"$output/${binary##*/}" 2>&1 &
    running+=($!)
done
status=0
for at in "${!binaries[@]}"; do
    wait "${running[at]}" || status=1
    log="$output/${binaries[at]##*/}"
    cat "$log"
    # A filter that selects nothing passes too.
    grep -Eq '^test result: .* [1-9][0-9]* passed' "$log" || { echo "no model was run" >&2; status=1; }
done
exit "$status"
