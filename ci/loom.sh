#!/usr/bin/env bash
# The models of the lock-free structures, each in a process of its own, as many at a time as there are cores: loom maps and
# unmaps stacks all the time, and threads that do so in one process wait for each other.
#
#   ci/loom.sh        within a minute or two
#   ci/loom.sh all    with more preemptions in the models that take longest, as in ci/long.sh
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(-p rtprof-hooks -p rtprof-tracer -p rtprof-runtime -p rtprof-profiler -p rtprof-allocator)
output="$(mktemp -d)"
trap 'rm -rf "$output"' EXIT
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$PWD/target/loom"
[[ "${1:-}" != all ]] || export RTPROF_LOOM_ALL=1
cargo test "${packages[@]}" --profile loom --lib --no-run 2>&1 | tee "$output/built"

mapfile -t binaries < <(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$output/built")
((${#binaries[@]} * 2 == ${#packages[@]})) || { echo "not one binary for each of ${packages[*]}" >&2; exit 1; }
for binary in "${binaries[@]}"; do
    mapfile -t models < <("$binary" loom_ --list | sed -n 's/: test$//p')
    ((${#models[@]} > 0)) || { echo "$binary has no model" >&2; exit 1; }
    printf "$binary %s\n" "${models[@]}"
done >"$output/models"

# One line of the list: what the model says is shown when it has ended.
run_model() {
    local said
    if said="$("$1" --exact "$2" --test-threads=1 2>&1)" && grep -q '^test result: ok. 1 passed' <<<"$said"; then
        grep -E '^test (result: )?' <<<"$said"
    else
        printf '%s\n' "$said"
        return 1
    fi
}
export -f run_model
xargs -L 1 -P "$(nproc)" bash -c 'run_model "$@"' model <"$output/models"
