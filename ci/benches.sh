#!/usr/bin/env bash
# The benchmarks build, pass their own tests, and print a table; what it says is for a quiet machine to
# tell. Without the peers, which need minutes to compile.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy -p rtprof-benches --all-targets -- -D warnings
cargo test -p rtprof-benches --lib
table="$(cargo run --release -p rtprof-benches --bin bench -- --quick)"
printf '%s\n' "$table"
grep -q 'heap profile, 10000 records' <<<"$table" || { echo "the table is not complete" >&2; exit 1; }
