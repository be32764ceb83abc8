#!/usr/bin/env bash
# Every crate that is published can be packaged, without a warning. `verify` also builds each of them from its package
# alone, as crates.io's users do.
set -euo pipefail
cd "$(dirname "$0")/.."

verify=(--no-verify)
[[ "${1:-}" != verify ]] || verify=()
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
cargo package --workspace --exclude rtprof-benches --exclude rtprof-trace-check --exclude rtprof-test-support --allow-dirty \
    ${verify[@]+"${verify[@]}"} 2>&1 | tee "$log"
if grep '^warning' "$log"; then
    echo "cargo package warns" >&2
    exit 1
fi
